"""A real cluster of some nodes on this machine: kubelet, containerd, runc, kube-proxy and CoreDNS.

`python -m testbed.cluster up` starts it; every node has namespaces of its own. It needs root.
"""
