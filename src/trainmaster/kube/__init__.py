"""A real API server over HTTP.

``kubeconfig.load_config`` says which server and as whom (``config``), ``client.KubeCluster`` talks to it.
Only this package knows aiohttp's exceptions, status codes and credentials.
"""
