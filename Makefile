# roquet: `make` is `make check`. Every tool comes through the Go module proxy, pinned in tools/go.mod.
SHELL := bash
GO ?= go
# The toolchain that go.mod names, through the module proxy, also where a distribution's Go would not fetch it.
export GOTOOLCHAIN ?= auto
TOOL := $(GO) tool -modfile=tools/go.mod
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -s -w -X main.version=$(VERSION)

.PHONY: check help fmt format vet lint vulncheck generate-check proto test build dist image bench crash model fuzz clean

check: format vet lint vulncheck generate-check test ## all that must hold before a commit

help: ## what can be made
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/'

format: ## gofumpt and line lengths change nothing; `make fmt` applies them
	$(TOOL) golangci-lint fmt --diff ./cmd/... ./internal/... > /dev/null || { echo "not formatted: make fmt"; exit 1; }

fmt:
	$(TOOL) golangci-lint fmt ./cmd/... ./internal/...

vet:
	$(GO) vet ./...

lint: ## golangci-lint
	$(TOOL) golangci-lint run ./...
	$(TOOL) buf lint
	$(TOOL) buf breaking --against ".git#ref=$$(git rev-parse -q --verify HEAD~1 || echo HEAD)"

vulncheck: ## no vulnerability of a module is reached; the database comes through the module proxy, see tools/vulncheck
	@$(GO) run -C tools ./vulncheck -C "$(CURDIR)"

generate-check: ## generated code is what the generators make today
	$(GO) run -C tools ./protocolgen -check
	$(GO) run -C tools ./settingsgen -check
	@dir=$$(mktemp -d) && $(MAKE) -s proto PROTO_OUT="$$dir" && for f in $$(cd "$$dir" && find . -type f); do \
		cmp -s "$$dir/$$f" "$$f" || { echo "$$f is not what its .proto makes: make proto"; exit 1; }; \
	done; rm -rf "$$dir"

PROTO_OUT := .
proto: ## api/proto → messages, gRPC, REST gateway, /openapi.json; needs no network but the module proxy
	$(TOOL) buf generate -o "$(PROTO_OUT)"
	$(TOOL) buf generate --template buf.gen.openapi.yaml -o "$(PROTO_OUT)"

test: ## all tests with the race detector, house rules (internal/lint) included; then 200 kills under load
	ROQUET_SLOW_TESTS=1 $(GO) test -race -timeout 20m ./...
	$(GO) test -C tools ./protocolgen ./settingsgen
	cd e2e && $(GO) test -timeout 20m -count=1 ./...

build: ## bin/roquet, static
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/roquet ./cmd/server

ARCHES := amd64 arm64
dist: ## dist/roquet_linux_ARCH, what Dockerfile copies
	@mkdir -p dist
	@for a in $(ARCHES); do \
		CGO_ENABLED=0 GOOS=linux GOARCH=$$a $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o dist/roquet_linux_$$a ./cmd/server || exit 1; \
	done

image: dist ## dist/roquet-image.tar: OCI layout of all architectures, also for `docker load`; needs no daemon
	cd tools/image && $(GO) run . -binaries ../../dist -out ../../dist/roquet-image.tar -version '$(VERSION)'
	cd tools/image && $(GO) test -count=1 . -args -image ../../dist/roquet-image.tar

bench: build ## side by side with Apache RocketMQ 5.5.0; ratios in bench/out, summary in docs/benchmarks.md
	cd bench && $(GO) run . -roquet ../bin/roquet

crash: build ## the long kill -9 run
	cd e2e && $(GO) test ./crash -timeout 3h -run TestKill -count=1 -v -args -cycles 1000

model: ## 10,000 random scripts, kill -9 among their steps, against a model of the broker
	$(GO) test ./internal/conformance -run TestModel -count=1 -timeout 12h -parallel 4 -v -scripts 10000 -workers 4

fuzz: ## each fuzzer for a minute
	@for p in $$($(GO) list ./...); do for f in $$($(GO) test -list '^Fuzz' $$p | grep ^Fuzz); do $(GO) test -run '^$$' -fuzz "^$$f$$" -fuzztime 60s $$p || exit 1; done; done

clean:
	rm -rf bin dist
