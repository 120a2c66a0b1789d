# One image for operator, server and webhook. It needs neither root nor a file system that can be written to:
#
#   docker build --tag trainmaster:0.1.0 .
#   docker run --rm --read-only trainmaster:0.1.0 --help
#
# A tag may move. To build twice on the same base, name its digest: --build-arg BASE=python:3.11-slim@sha256:…

ARG BASE=python:3.11-slim
FROM $BASE AS build
WORKDIR /build
RUN python -m venv --without-pip /opt/trainmaster
# Packages first: they change less often than the source, and are then taken from the cache.
COPY requirements/run.txt requirements/build.txt requirements/
RUN pip --python /opt/trainmaster install --no-cache-dir --only-binary :all: --require-hashes -r requirements/run.txt
RUN pip install --no-cache-dir --only-binary :all: --require-hashes -r requirements/build.txt
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir dist . \
 && pip --python /opt/trainmaster install --no-cache-dir --no-deps --no-index dist/*.whl

FROM $BASE
# Nothing is installed here any more, by nobody.
RUN pip uninstall --yes pip setuptools wheel
COPY --from=build /opt/trainmaster /opt/trainmaster
ENV PATH=/opt/trainmaster/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
# A number, so that a kubelet can see that it is not root.
USER 65532:65532
ENTRYPOINT ["trainmaster"]
