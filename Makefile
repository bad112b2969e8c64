# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Each target does all its own set-up; `make help` lists them.

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint unit accuracy sanity molecule cluster-up cluster-down cluster-test coverage bench docs lock clean

# Ansible refuses a locale that isn't UTF-8.
export LC_ALL := $(if $(findstring UTF-8,$(LC_ALL)),$(LC_ALL),C.UTF-8)
# Where this is set, every start would compile Ansible anew.
unexport PYTHONDONTWRITEBYTECODE

bin := .venv/bin
testcluster := @PYTHONPATH=tests/cluster:tests/tools $(bin)/python -m testcluster
gates := @tests/tools/bootstrap dev && $(bin)/python tests/tools/gates.py

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 22

setup:  ## only the environment: .venv, and the link by which Ansible finds this checkout
	@tests/tools/bootstrap run
	@echo "ready: $(bin)/ansible-playbook diagnose-oom.yml -e vllm_oom_namespace=NAMESPACE"

demo:  ## diagnose the bundled evidence and print the findings
	@tests/tools/bootstrap run
	@$(bin)/ansible-playbook docs/examples/demo.yml

test:  ## every gate: unit tests, accuracy, linters, types, sanity, docs, molecule, a real cluster
	$(gates)

lint:  ## the quick gates
	$(gates) ruff mypy layers ansible-lint docs changelog

unit:  ## the unit tests
	$(gates) unit

accuracy:  ## the cases: the table, and that no figure fell
	$(gates) accuracy
	@cat build/gates/accuracy.log

sanity:  ## ansible-test sanity, on this Python and on the older ones
	$(gates) sanity

molecule:  ## the roles, run on bundles
	$(gates) molecule

cluster-up:  ## a real Kubernetes cluster in a temporary folder, to use by hand; prints its KUBECONFIG line
	@tests/tools/bootstrap dev
	$(testcluster) up

cluster-down:  ## take it down
	@tests/tools/bootstrap dev
	$(testcluster) down

cluster-test:  ## the runbook against a real cluster, whose pods really die
	$(gates) cluster changes

coverage:  ## the unit tests, with the lines they don't reach
	@tests/tools/bootstrap dev
	@$(bin)/coverage run -m pytest -q tests/unit; tests=$$?; $(bin)/coverage report && exit $$tests

bench:  ## the scanner beside grep, a run beside an empty playbook, sizing beside reading a config
	@tests/tools/bootstrap dev
	@for script in tests/benchmarks/*.py; do $(bin)/python "$$script" || exit 1; done

docs:  ## the documentation as HTML in build/docs
	@tests/tools/bootstrap dev
	@tests/tools/build_docs

lock:  ## write the locked requirements anew, with the newest versions
	@tests/tools/bootstrap dev
	@PATH="$$PWD/$(bin):$$PATH" tests/tools/lock_requirements

clean:  ## remove everything that these targets made in the checkout
	@rm -rf .venv .ansible build .coverage .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
