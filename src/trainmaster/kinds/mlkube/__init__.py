"""MxJob, mxnet.mlkube.io/v1beta1."""
