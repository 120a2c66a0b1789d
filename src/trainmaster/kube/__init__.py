"""A real API server over HTTP.

``kubeconfig.load_config`` finds the server and the credentials (``config``), ``client.KubeCluster`` sends requests.
Only this package knows aiohttp's exceptions, status codes and credentials.
"""
