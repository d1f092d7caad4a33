# roquet from a binary that `make dist` built. Needs nothing but itself: no base image, no RUN, so any builder on any
# platform makes it: `make dist && docker build --build-arg TARGETARCH=amd64 -t roquet .` (buildx sets TARGETARCH itself).
FROM scratch
ARG TARGETARCH
COPY dist/roquet_linux_${TARGETARCH} /roquet
COPY --chown=65532:65532 deploy/docker/data/ /var/lib/roquet/
ENV ROQUET_BIND_ADDRESS=0.0.0.0 ROQUET_STORE_PATH_ROOT_DIR=/var/lib/roquet
USER 65532:65532
VOLUME /var/lib/roquet
EXPOSE 9876 10911 10909 8081 8080
HEALTHCHECK --interval=5s --timeout=4s --start-period=30s CMD ["/roquet", "health"]
ENTRYPOINT ["/roquet"]
CMD ["serve"]
