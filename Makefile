# `make` alone says what there is. The first two targets need nothing but Rust and Go.
SHELL := bash
.DEFAULT_GOAL := help
.PHONY: help demo tour test test-observability test-observability-live test-choices test-upgrade test-compat test-helm test-cloudformation test-image test-getting-started test-slis test-aws test-page test-page-live test-page-load test-top-live soak test-boto3 mutants lint bench bench-extender bench-load bench-lifecycle crds fuzz

# Build products live outside the checkout and are shared by all of its copies. One profile, `dev`: a release build of
# the AWS SDK takes over ten minutes.
export CARGO_TARGET_DIR ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/muster/target

# Versions beside the newest, which `make test` runs on.
COMPATIBLE ?= v1.35.4 v1.36.3

# Builds etcd, kube-apiserver, kube-scheduler, kube-controller-manager, kubectl and kwok from Go modules: minutes at
# first, nothing afterwards. Where Go is missing or too old the script ends with 3 and says so in one line, which gets
# $(1) in front: what follows from it. $(2): --check, for a command that builds it itself.
define control-plane
set -o pipefail; hack/control-plane/build.sh $(2) 2>&1 >/dev/null | while IFS= read -r line; do \
	case "$$line" in \
	"control plane: Go "*) echo "$(1)$${line#control plane: }" ;; \
	*) echo "$$line" ;; \
	esac; done >&2
endef

help: ## Say what there is
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-23s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## Start a whole cluster on this machine and watch a gang get its nodes; DEMO_ARGS are passed on
	@$(call control-plane,make demo: not possible without the real Kubernetes control plane: ,--check)
	cargo run --bin muster -- demo $(DEMO_ARGS)

tour: ## Look at a recorded cluster in the browser: needs Rust alone and a few minutes; TOUR_ARGS are passed on (top, explain, html)
	cargo run --package muster-viewer --bin muster-tour -- $(TOUR_ARGS)

# An end-to-end test waits more than it works: with one to a core half the machine is idle.
TEST_THREADS := $(shell echo $$((2 * $$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2))))

# What needs more than Go and Rust, minutes of its own, or a machine that does nothing else: test-helm, test-upgrade,
# test-getting-started, test-slis.
ELSEWHERE := helm:: upgrade:: first_contact:: slis::

# What computes for minutes and waits for nothing runs beside them, on what of the processor they leave.
BESIDE := batch:: packing::
IDLE := $(shell command -v chrt >/dev/null 2>&1 && echo chrt --idle 0 || echo nice -n 19)

test: ## Run every test, the end-to-end suite on a real control plane included
	@$(call control-plane,$(if $(filter true,$(CI)),make test: CI runs no less than everything: ,make test: the end-to-end tests do not run: )); \
	case $$? in \
	0) hack/control-plane/kueue/build.sh >/dev/null || exit 1 ;; \
	3) if [ "$${CI:-}" = true ]; then exit 3; fi; export MUSTER_WITHOUT_CONTROL_PLANE=1 ;; \
	*) exit 1 ;; \
	esac; \
	echo "cargo test --workspace"; \
	echo "excluded, each with a target of its own: $(ELSEWHERE)"; \
	cargo test --workspace --tests --no-run || exit 1; \
	beside=$$(mktemp) && trap 'rm -f "$$beside"' EXIT; \
	{ $(IDLE) cargo test --quiet --workspace --tests -- $(BESIDE) && $(IDLE) cargo test --quiet --workspace --doc; } >"$$beside" 2>&1 & computing=$$!; \
	rc=0; RUST_TEST_THREADS=$${RUST_TEST_THREADS:-$(TEST_THREADS)} cargo test --workspace --tests -- $(addprefix --skip ,$(ELSEWHERE) $(BESIDE)) || rc=$$?; \
	echo "beside these, $(BESIDE) and documentation:"; wait $$computing || rc=$$?; cat "$$beside"; exit $$rc

test-observability: ## Hold alerts and dashboards against promtool, which is built once from its Go module
	@promtool=$$(hack/prometheus/build.sh); case $$? in \
	0) PROMTOOL=$$promtool hack/observability-test.sh ;; \
	3) echo "make test-observability: not possible without Go" >&2; [ "$${CI:-}" = true ] && exit 3 || exit 0 ;; \
	*) exit 1 ;; \
	esac

# Prometheus itself is built once from the same Go module as promtool: some minutes.
test-observability-live: ## Have a real Prometheus scrape a live demo, and evaluate every query of dashboards and alerts
	@$(call control-plane,make test-observability-live: not possible without the real Kubernetes control plane: )
	@command -v node >/dev/null || { echo "make test-observability-live: not possible without node" >&2; [ "$${CI:-}" = true ] && exit 3 || exit 0; }; \
	prometheus=$$(hack/prometheus/build.sh prometheus) && promtool=$$(hack/prometheus/build.sh); case $$? in \
	0) cargo build --quiet --workspace --bin muster && \
	node hack/observability-live.mjs $$CARGO_TARGET_DIR/debug/muster "$$prometheus" "$$promtool" ;; \
	3) echo "make test-observability-live: not possible without Go" >&2; [ "$${CI:-}" = true ] && exit 3 || exit 0 ;; \
	*) exit 1 ;; \
	esac

# boto3 of one version, in an environment of its own: what the models know depends on it.
BOTO3 := 1.44.5
BOTO3_ENV = $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/muster/boto3-$(BOTO3)

test-boto3: ## Run boto3 against the EC2 simulator and hold every request and answer against botocore's models
	@python=$(BOTO3_ENV)/bin/python; \
	if ! $$python -c 'import boto3' 2>/dev/null && ! { python3 -m venv $(BOTO3_ENV) && \
	$$python -m pip install --quiet --disable-pip-version-check boto3==$(BOTO3); }; then \
		echo "make test-boto3: not possible: boto3 $(BOTO3) cannot be installed with python3 -m venv and pip" >&2; \
		[ "$${CI:-}" = true ] && exit 3 || exit 0; \
	fi; \
	$$python hack/boto3-roundtrip.py || exit 1; \
	journals=$$(mktemp -d) && trap 'rm -r "$$journals"' EXIT && \
	EC2_SIM_JOURNAL_DIR=$$journals cargo test --quiet --package muster-ec2-sim >/dev/null && $$python hack/botocore-check.py "$$journals"/*

# AWS_ARGS: --yes --region --type --subnet --max-usd --clean-up. Everything else needs neither an account nor a network.
test-aws: ## In your own account: launch two small instances in a group, on demand and on spot, and end them; asks first; AWS_ARGS
	@journal=$$(mktemp); rc=0; \
	cargo run --quiet --package muster-ec2 --example first_launch -- --journal "$$journal" $(AWS_ARGS) || rc=$$?; \
	if [ ! -s "$$journal" ]; then rm -f "$$journal"; exit $$rc; fi; \
	if [ $$rc -ne 0 ]; then echo "make test-aws: what was sent and answered is in $$journal" >&2; \
	else trap 'rm -f "$$journal"' EXIT; fi; \
	python=$(BOTO3_ENV)/bin/python; \
	if ! $$python -c 'import boto3' 2>/dev/null && ! { python3 -m venv $(BOTO3_ENV) && \
	$$python -m pip install --quiet --disable-pip-version-check boto3==$(BOTO3); }; then \
		echo "make test-aws: the answers were not held against botocore's models: boto3 $(BOTO3) cannot be installed" >&2; exit $$rc; \
	fi; \
	$$python hack/botocore-check.py "$$journal" || rc=$$?; exit $$rc

# The template needs no AWS: cfn-lint has the schemas, moto plays CloudFormation.
CFN := cfn-lint==1.58.0 moto[cloudformation,ec2,iam,sqs,events]==5.2.5 boto3==$(BOTO3)
CFN_ENV = $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/muster/cloudformation-$(BOTO3)

test-cloudformation: ## Lint the CloudFormation template, deploy it in moto, and hold rules and policy against what they are for
	@python=$(CFN_ENV)/bin/python; \
	if ! $$python -c 'import boto3, moto, cfnlint' 2>/dev/null && ! { python3 -m venv $(CFN_ENV) && \
	$$python -m pip install --quiet --disable-pip-version-check $(foreach one,$(CFN),'$(one)'); }; then \
		echo "make test-cloudformation: not possible: cfn-lint and moto cannot be installed with python3 -m venv and pip" >&2; \
		[ "$${CI:-}" = true ] && exit 3 || exit 0; \
	fi; \
	cargo build --quiet --workspace --bin muster && MUSTER=$$CARGO_TARGET_DIR/debug/muster $$python hack/cloudformation-test.py

# playwright-core drives the Chromium that is there; two npm packages and nothing else are installed. CHROMIUM names another browser
# of the kind.
PAGE := playwright-core@1.65.1 axe-core@4.14.1
PAGE_ENV = $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/muster/page-$(subst $() ,-,$(PAGE))
CHROMIUM ?= $(shell command -v chromium || command -v chromium-browser || command -v google-chrome)

# $(1) is the target; where something is missing it ends there, in CI as a failure.
define page-browser
missing=; command -v node >/dev/null && command -v npm >/dev/null || missing="node and npm"; \
[ -x "$(CHROMIUM)" ] || missing="$${missing:+$$missing, }chromium"; \
if [ -z "$$missing" ] && [ ! -e $(PAGE_ENV)/installed ]; then \
	mkdir -p $(PAGE_ENV) && npm install --silent --no-save --no-fund --no-audit --prefix $(PAGE_ENV) $(PAGE) >/dev/null 2>&1 && \
	touch $(PAGE_ENV)/installed || missing="$(PAGE) from npm"; \
fi; \
if [ -n "$$missing" ]; then \
	echo "make $(1): not possible without $$missing" >&2; \
	[ "$${CI:-}" = true ] && exit 3 || exit 0; \
fi
endef

test-page: ## Look at the page in a real browser: console, policy, axe-core, keyboard, updates; SHOTS=folder keeps screenshots
	@$(call page-browser,test-page); \
	cargo build --quiet --package muster-viewer && \
	PAGE_MODULES=$(PAGE_ENV) node hack/page-check.mjs $$CARGO_TARGET_DIR/debug/muster-tour "$(CHROMIUM)" $(SHOTS)

test-page-live: ## Look at the page of a live demo in a real browser while its four stories happen; SHOTS=folder keeps screenshots
	@$(call control-plane,make test-page-live: not possible without the real Kubernetes control plane: )
	@$(call page-browser,test-page-live); \
	cargo build --quiet --workspace --bin muster && \
	PAGE_MODULES=$(PAGE_ENV) node hack/page-live.mjs $$CARGO_TARGET_DIR/debug/muster "$(CHROMIUM)" $(SHOTS)

test-top-live: ## Drive muster top of a live demo in tmux, complete names in bash, zsh and fish; SHOTS=folder keeps screens
	@$(call control-plane,make test-top-live: not possible without the real Kubernetes control plane: )
	@for tool in node tmux zsh fish; do command -v $$tool >/dev/null || { \
		echo "make test-top-live: not possible without $$tool" >&2; [ "$${CI:-}" = true ] && exit 3 || exit 0; }; done; \
	cargo build --quiet --workspace --bin muster && \
	node hack/top-live.mjs $$CARGO_TARGET_DIR/debug/muster "$$(hack/control-plane/build.sh --print)/kubectl" $(SHOTS)

# Optimised, as the image is: both sides of the comparison are work of the processor.
test-page-load: ## At 5,000 nodes: what the page weighs compressed, and filter's p99 with fifty open pages beside that without; ROUNDS, SECONDS_EACH
	@$(call control-plane,make test-page-load: not possible without the real Kubernetes control plane: )
	@command -v node >/dev/null || { echo "make test-page-load: not possible without node" >&2; [ "$${CI:-}" = true ] && exit 3 || exit 0; }; \
	cargo build --quiet --profile quick-release --workspace --bin muster && \
	node hack/page-load.mjs $$CARGO_TARGET_DIR/quick-release/muster $(or $(ROUNDS),6) $(or $(SECONDS_EACH),20)

# The oldest version whose gangs and NodeBatches are taken over, and to which one can go back.
OLDEST := 1d46871

soak: ## A hundred thousand histories of NodeBatches; crash at every step in every weather and of nodes for pods, a thousand gangs with seeded faults, two hundred lives on existing nodes, ten of a cluster that begins empty, insufficient capacity; from the oldest version and back
	@$(call control-plane,make soak: not possible without the real Kubernetes control plane: )
	MUSTER_SOAK=1 cargo test --package muster-core --test it -- batch:: without_any_enumeration --nocapture
	MUSTER_SOAK=1 cargo test --package muster-replay --test it -- examiner:: --nocapture
	MUSTER_SOAK=1 cargo test --workspace --test e2e -- chaos:: live:: ordinary_faults:: --nocapture --test-threads=1
	$(MAKE) test-upgrade BEFORE=$(OLDEST)

# kube-scheduler is optimised: so is Muster here, in a build of its own (about a quarter of an hour at first).
bench-load: ## Time 1,000 pods on 1,000 nodes: stock, native gangs, Muster; then larger and wider; NODES, PODS, RUNS, ROWS (as nominate,pin+fsync)
	cargo build --profile quick-release --workspace --bin muster
	MUSTER=$${MUSTER:-$$CARGO_TARGET_DIR/quick-release/muster} cargo bench --quiet --profile dev --workspace --bench load

# Optimised as well: Muster is timed beside kube-scheduler.
bench-lifecycle: ## Time 1,000 pods that have no nodes yet, five cases, beside kube-scheduler on the same nodes; dollars beside their bound; PODS, ROWS (as mix,nodes; waiting: pods that get nothing, and others beside them)
	cargo build --profile quick-release --workspace --bin muster
	MUSTER=$${MUSTER:-$$CARGO_TARGET_DIR/quick-release/muster} cargo bench --quiet --profile dev --workspace --bench lifecycle

# The older commit is built once, in a folder of its own: crates of one name in two checkouts are one to Cargo, and what it built last of
# the other one would pass for that of this one.
BEFORE ?= HEAD~1
test-upgrade: ## Replace muster serve of the commit BEFORE (default: the one before this) by this one, and back, with gangs and nodes on their way
	@if ! before=$$(git rev-parse --verify --quiet "$(BEFORE)^{commit}"); then \
		echo "make test-upgrade: not possible: the checkout has no commit $(BEFORE)"; exit 0; fi; \
	$(call control-plane,make test-upgrade: not possible without the real Kubernetes control plane: ) || exit 1; \
	cache=$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/muster/upgrade; binary=$$cache/muster-$$before; mkdir -p "$$cache"; \
	if [ ! -x "$$binary" ]; then \
		git worktree remove --force "$$cache/source" 2>/dev/null; git worktree prune; \
		git worktree add --detach --quiet "$$cache/source" "$$before" && \
		(cd "$$cache/source" && cargo build --workspace --bin muster --target-dir "$$cache/target") && \
		cp "$$cache/target/debug/muster" "$$binary" || exit 1; \
		git worktree remove --force "$$cache/source"; fi; \
	git show "$$before:manifests/muster.yaml" >"$$binary.yaml" && \
	git show "$$before:manifests/iam/policy.json" >"$$binary.policy.json" && \
	MUSTER_BEFORE=$$binary MUSTER_BEFORE_CONFIG=$$binary.yaml MUSTER_BEFORE_POLICY=$$binary.policy.json cargo test --workspace --test e2e -- upgrade:: --nocapture

# What EC2 does not document: each answer of the simulator that could be another one is the other one for a run.
# Both runs with all of them together take as long as two of the single ones.
CHOICE_NAMES = $(shell sed -n 's/^    ."\([a-z-]*\)", |choices|.*/\1/p' crates/ec2-sim/src/choices.rs)
CHOICES ?= all-first all-last

test-choices: ## Run the EC2 suites with every undocumented answer of EC2 flipped; CHOICES=each: one at a time
	@$(call control-plane,make test-choices: not possible without the real Kubernetes control plane: )
	@set -e; for choice in $(if $(filter each,$(CHOICES)),$(CHOICE_NAMES),$(CHOICES)); do \
		echo "choice $$choice"; \
		MUSTER_SIM_CHOICE=$$choice cargo test --quiet --workspace --test e2e -- provisioning:: ways:: repair:: denied:: bad_input:: scenarios:: killed::; \
		MUSTER_SIM_CHOICE=$$choice cargo test --quiet --workspace --test it -- doctor::; \
	done

# Per version of the API server: its own kube-scheduler, and the one of the minor version below (1.35 has none here).
# FIRST is what the shipped profile needs of both: the assumptions of the protocol, and a gang from nothing to bound.
FIRST := assumptions:: existing_nodes::a_gang_takes
NEWEST = $(shell awk '$$1 == "k8s.io/kubernetes" { print $$2; exit }' hack/control-plane/kubernetes/go.mod)

test-compat: ## Run the protocol's assumptions on every supported API server, with its kube-scheduler and the one of the minor below
	@set -e; below=; for version in $(sort $(COMPATIBLE) $(NEWEST)); do \
		MUSTER_KUBERNETES=$$version hack/control-plane/build.sh >/dev/null; \
		folder=$$(MUSTER_KUBERNETES=$$version hack/control-plane/build.sh --print); \
		for scheduler in $$folder/kube-scheduler $$below; do \
			echo "API server $$version, $$($$scheduler --version)"; \
			MUSTER_KUBERNETES=$$version MUSTER_KUBE_SCHEDULER=$$scheduler cargo test --workspace --test e2e -- $(FIRST); \
		done; \
		below=$$folder/kube-scheduler; \
	done

# Helm 3 and 4 are built once from Go modules, about five minutes on two cores. The upgrade begins with the charts of BEFORE.
test-helm: ## Install, upgrade from the commit BEFORE, roll back and uninstall by Helm 3 and 4; the charts against the kustomization; wrong values
	@$(call control-plane,make test-helm: not possible without the real Kubernetes control plane: )
	@folder=$$(hack/helm/build.sh) || exit 1; before=$$(mktemp -d) && trap 'rm -r "$$before"' EXIT; \
	if git rev-parse --verify --quiet "$(BEFORE)^{commit}" >/dev/null; then \
		git archive "$(BEFORE)" charts | tar -x -C "$$before" && export MUSTER_CHARTS_BEFORE="$$before/charts"; \
	else echo "make test-helm: the checkout has no commit $(BEFORE): the upgrade begins with the same charts"; fi; \
	MUSTER_HELM=$$folder cargo test --workspace --test e2e -- helm::

# A release build (twenty minutes on two cores, at first), and cargo-cyclonedx once.
test-image: ## Take the Dockerfile's steps without a daemon: size, no shell, user, bill of materials, how soon it is ready
	@$(call control-plane,make test-image: not possible without the real Kubernetes control plane: )
	hack/image/test.sh $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/muster

# moto plays what the EC2 simulator does not; AWS's own tool asks both.
AWS := awscli==1.46.3 moto[server,cloudformation,ec2,iam,sqs,events]==5.2.5
AWS_ENV = $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/muster/aws-1.46.3

test-slis: ## Hold the start of thirty gangs, as the metric has it, against the audit log, to 100 ms: alone, with nothing beside it
	@$(call control-plane,make test-slis: not possible without the real Kubernetes control plane: )
	cargo test --workspace --test e2e -- slis:: --test-threads 1 --nocapture

test-getting-started: ## Execute docs/getting-started-eks.md line by line: git, kubectl, Helm and the AWS CLI against simulators
	@$(call control-plane,make test-getting-started: not possible without the real Kubernetes control plane: )
	@if [ ! -x $(AWS_ENV)/bin/moto_server ] && ! { python3 -m venv $(AWS_ENV) && \
	$(AWS_ENV)/bin/python -m pip install --quiet --disable-pip-version-check $(foreach one,$(AWS),'$(one)'); }; then \
		echo "make test-getting-started: not possible: the AWS CLI and moto cannot be installed with python3 -m venv and pip" >&2; \
		[ "$${CI:-}" = true ] && exit 3 || exit 0; \
	fi; \
	folder=$$(hack/helm/build.sh) || exit 1; \
	MUSTER_HELM=$$folder MUSTER_AWS=$(AWS_ENV)/bin cargo test --workspace --test e2e -- first_contact:: --nocapture

# Needs cargo-mutants (`cargo install cargo-mutants --locked`). Some hours on four cores; SHARD=1/20 takes every twentieth.
# Debug implementations are for people who look at a failure, and decide nothing.
mutants: ## Change the pass over NodeBatches line by line, and see that a test notices each; SHARD=k/n takes a part
	MUSTER_BATCH_HISTORIES=25 cargo mutants --package muster-core --file 'crates/core/src/batch/*' --exclude-re 'fmt::Debug' \
	--profile mutants --baseline skip --timeout 60 --jobs 2 $(if $(SHARD),--shard $(SHARD)) \
	--cargo-arg=--lib --cargo-arg=--test=it -- batch collect:: books:: ordinary::

lint: ## Check formatting and lints, warnings denied
	cargo fmt --all -- --check
	cargo clippy --workspace --all-targets -- -D warnings

bench: ## Hold the planners against their yardsticks and Karpenter; BENCH_ARGS, PACKING_ARGS: "--json FILE" for JSON
	cargo run --quiet --profile quick-release --package muster-core --example planner -- $(BENCH_ARGS)
	@peer=$$(hack/karpenter/build.sh); case $$? in \
	0) beside="--karpenter $$peer" ;; \
	*) echo "make bench: nodes for ordinary pods are planned without Karpenter beside them" >&2; beside= ;; esac; \
	cargo run --quiet --profile quick-release --package muster-core --example packing -- $$beside $(PACKING_ARGS)
	cargo run --quiet --profile quick-release --package muster-view --example overview

bench-extender: ## Time filter and prioritize at 5,000 nodes beside bare reading and writing, and a cycle of kube-scheduler
	cargo bench --quiet --profile dev --workspace --bench extender
	@$(call control-plane,make bench-extender: without the cycle of kube-scheduler itself: ); [ $$? -eq 0 ] || exit 0; \
	echo "kube-scheduler alone at 5,000 nodes: a cycle is the seconds of its column divided by 1,000 pods"; \
	NODES=5000 PODS=1000 RUNS=1 ROWS=stock cargo bench --quiet --profile dev --workspace --bench load

crds: ## Write manifests/crds from the types in crates/api, and the charts' copies
	cargo run --quiet --bin muster -- crds --out manifests/crds
	hack/charts.sh

# Needs cargo-fuzz (`cargo install --locked cargo-fuzz`); without a sanitizer the stable compiler does. What is found lands in fuzz/artifacts; put the
# input among the seeds of its target, and the ordinary tests keep it.
FUZZ_TARGETS := dump catalogue requirements quantity extender labels message form
FUZZ_SECONDS ?= 600

fuzz: ## Fuzz the readers of what strangers write, FUZZ_SECONDS each
	for target in $(FUZZ_TARGETS); do \
	mkdir -p fuzz/corpus/$$target && cargo fuzz run -s none $$target fuzz/corpus/$$target fuzz/seeds/$$target -- \
	-max_total_time=$(FUZZ_SECONDS) -timeout=20 -rss_limit_mb=4096 || exit 1; done
