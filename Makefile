# Short ways to what developers do. `make` lists them.

RACE = ./actors ./supervise ./collective ./telemetry ./transport/...
FUZZTIME ?= 20s

.DEFAULT_GOAL := help
.PHONY: help build test race bench fuzz verify-all fmt vet generate ci soak soak-sim soak-kill

help: ## list these targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

build: ## the program as ./phalanx
	go build -o phalanx ./cmd/phalanx

test: ## all tests
	go test ./...

race: ## the packages with goroutines under the race detector (needs a C compiler)
	go test -race $(RACE)
	go test -race -run 'Pool|Parallel|Threads|Worker' ./tensor/kernel

bench: build ## matrix products, training steps and layers of experts, with the peak beside them
	./phalanx bench gemm
	./phalanx bench step
	./phalanx bench moe

fuzz: ## every fuzz test for FUZZTIME (20s)
	@set -e; for file in $$(grep -rl --include='*_test.go' '^func Fuzz' .); do \
		for name in $$(sed -nE 's/^func (Fuzz[A-Za-z0-9_]*)\(.*/\1/p' $$file); do \
			echo "$$name in $$(dirname $$file)"; \
			go test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) "./$$(dirname $$file)"; \
		done; \
	done

verify-all: build ## every reference case, on one rank and on TP 2 × CP 2 with SP; says which are refused
	@set -e; for case in internal/golden/cases/*.json; do \
		for layout in "" "--tp 2 --cp 2 --sp"; do \
			code=0; out=$$(./phalanx verify "$$PWD/$$case" $$layout 2>&1) || code=$$?; \
			case $$code in \
			0) echo "held     $$(basename $$case .json) $$layout";; \
			2) echo "refused  $$(basename $$case .json) $$layout";; \
			*) echo "$$out"; exit $$code;; \
			esac; \
		done; \
	done

soak: soak-sim soak-kill ## what CI has no time for

soak-sim: ## 100,000 simulated schedules over all layouts
	go test -timeout 4h -run TestSoak -soak 100000 -v ./sim

soak-kill: ## 200 processes killed in each kind of run
	PHALANX_SOAK_KILLS=200 go test -timeout 4h -run TestKilled -v ./run
	PHALANX_SOAK_KILLS=200 go test -timeout 1h -run TestServersAreKilled -v ./supervise

fmt: ## gofmt
	gofmt -w $$(git ls-files '*.go')

vet: ## go vet, for arm64 too
	go vet ./...
	GOARCH=arm64 go vet ./...

generate: ## assembly, and the tables of docs/scenario.md
	go generate ./...

ci: ## what CI runs
	bash .ci/run
