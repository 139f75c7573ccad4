# Harness Engine. `make help` lists the targets.

SHELL       := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

TOOL := go tool -modfile=tools/go.mod

DATA ?= data
ADDR ?= 127.0.0.1:8080

.PHONY: help
help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-20s %s\n", $$1, $$2}'

# --- what a fresh machine needs ---------------------------------------------------------------------------------

# Each npm folder is installed from its lockfile when that is newer than the install.
worker/node/node_modules/.package-lock.json: worker/node/package-lock.json
	cd worker/node && npm ci --no-audit --no-fund --loglevel=error

worker/node-claude/node_modules/.package-lock.json: worker/node-claude/package-lock.json
	cd worker/node-claude && npm ci --no-audit --no-fund --loglevel=error

e2e/conformance/node_modules/.package-lock.json: e2e/conformance/package-lock.json
	cd e2e/conformance && npm ci --no-audit --no-fund --loglevel=error

e2e/browser/node_modules/.package-lock.json: e2e/browser/package-lock.json
	cd e2e/browser && npm ci --no-audit --no-fund --loglevel=error

transport/playground/node_modules/.package-lock.json: transport/playground/package-lock.json
	cd transport/playground && npm ci --no-audit --no-fund --loglevel=error

transport/playground/dist/index.html: transport/playground/node_modules/.package-lock.json $(wildcard transport/playground/src/*) transport/playground/package.json
	cd transport/playground && npm run --silent build

.PHONY: check-tools
check-tools:
	@command -v go >/dev/null || { echo "make: Go 1.26 or newer is needed (https://go.dev/dl)" >&2; exit 1; }
	@command -v node >/dev/null || { echo "make: Node 20 or newer is needed (https://nodejs.org)" >&2; exit 1; }

.PHONY: node
node: check-tools worker/node/node_modules/.package-lock.json worker/node-claude/node_modules/.package-lock.json transport/playground/dist/index.html ## Install the Node parts

.PHONY: node-tests
node-tests: check-tools e2e/browser/node_modules/.package-lock.json e2e/conformance/node_modules/.package-lock.json ## Install what only tests need

.PHONY: build
build: node ## Build bin/harness-engine and bin/harness-worker
	@mkdir -p bin
	CGO_ENABLED=0 go build -o bin/ ./cmd/harness-engine ./cmd/harness-worker

# --- what one does with it --------------------------------------------------------------------------------------

.PHONY: demo
demo: build ## Run two harnesses, cut a subscriber off, prove that nothing is lost
	go run ./e2e/demo -bin bin -data $(DATA)/demo

.PHONY: run
run: build ## Start the engine with its data in ./data and print the playground's URL
	bin/harness-engine serve --dev --addr $(ADDR) --data $(DATA)/dev

.PHONY: test
test: build ## Run every test, the units with the race detector where there is a C compiler (about ten minutes on two cores)
	build/test.sh

.PHONY: race
race: build ## Run the Go tests under the race detector (needs a C compiler); not e2e, which runs built programs
	CGO_ENABLED=1 go test -race -timeout 30m $$(go list ./... | grep -v /e2e)

.PHONY: conformance-client
conformance-client: build e2e/conformance/node_modules/.package-lock.json ## Run the engine against clients, audits and a protocol that others wrote
	go run ./e2e/conformance -bin bin

.PHONY: bench
bench: build ## Measure beside a floor in the same run (minutes; go run ./bench -quick takes seconds); results in bench/results
	go run ./bench -bin bin -out bench/results

.PHONY: faults
faults: node ## Cause N faults (default 100) drawn from SEED, and prove that nothing is lost; about half a second a fault
	@mkdir -p bin/faults
	CGO_ENABLED=0 go build -tags faults -o bin/faults/ ./cmd/harness-engine ./cmd/harness-worker
	go run ./e2e/faults -bin bin/faults -n $${N:-100} -seed $${SEED:-0}

.PHONY: fuzz
fuzz: ## Fuzz each parser for FUZZTIME (default 60s), those of frames for FRAMETIME (default the same)
	build/fuzz.sh $(or $(FUZZTIME),60s) $(FRAMETIME)

# --- what a contributor needs -----------------------------------------------------------------------------------

.PHONY: generate
generate: ## Generate graph/ from schema.graphqls
	$(TOOL) gqlgen generate

.PHONY: drift
drift: generate ## Fail when generated code differs from what is committed
	git diff --exit-code -- graph resolvers

.PHONY: schema-check
schema-check: ## Fail when schema.graphqls breaks clients of the last tag, or of BASE=<ref>
	build/schema-check.sh $(BASE)

.PHONY: lint
lint: ## Format check, vet and golangci-lint (dependency rule included)
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { gofmt -l $$(git ls-files '*.go'); echo "make: run gofmt -w on these" >&2; exit 1; }
	go vet ./...
	$(TOOL) golangci-lint run ./...

.PHONY: clean
clean: ## Remove what was built and the data of demo and run
	rm -rf bin $(DATA) transport/playground/dist/assets transport/playground/dist/index.html
