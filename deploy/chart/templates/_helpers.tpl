{{- define "trainmaster.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* The number that the value names; without one as many as there are, so that an upgrade keeps what was changed by
hand. */ -}}
{{- define "trainmaster.replicas" -}}
{{- if not (kindIs "invalid" .wanted) -}}
{{ .wanted }}
{{- else -}}
{{- $found := lookup "apps/v1" "Deployment" .root.Release.Namespace .name -}}
{{- dig "spec" "replicas" .default $found -}}
{{- end -}}
{{- end -}}

{{- /* Rules or webhooks of the chosen kinds, as JSON. Rights add up, so rules of several kinds stand side by side. */ -}}
{{- define "trainmaster.parts" -}}
{{- $part := .part -}}
{{- $parts := .root.Files.Get "files/kinds.json" | replace "@namespace@" .root.Release.Namespace | fromJson -}}
{{- $found := list -}}
{{- range .root.Values.kinds | default (list "all") -}}
{{- $found = concat $found (dig . $part list $parts) -}}
{{- end -}}
{{- toJson (uniq $found) -}}
{{- end -}}

{{- /* Only DIJobs and NerveXJobs ask di-server for replicas. */ -}}
{{- define "trainmaster.hasServer" -}}
{{- $kinds := .Values.kinds | default (list "dijob") -}}
{{- if and .Values.server.enabled (or (has "dijob" $kinds) (has "nervexjob" $kinds)) -}}
true
{{- end -}}
{{- end -}}

{{- define "trainmaster.labels" -}}
app.kubernetes.io/part-of: trainmaster
{{- end -}}
