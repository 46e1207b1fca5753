# Tessera: one non-recursive makefile for the programs, the tests and the checks.
# `make help` lists the targets. Everything that is built lies under build/<variant>/.
#
#   make CC=clang        the other compiler (objects are rebuilt when compiler or flags change)
#   make WERROR=1        warnings are errors
#   make V=1             show the full commands
#   make OPT=-O3         optimisation of the release and bench builds
#   make BUILD=dir       another build folder

ifeq ($(origin CC),default)
CC := gcc
endif
AR ?= ar
FUZZ_CC ?= clang
CLANG_FORMAT ?= clang-format
CLANG_TIDY ?= clang-tidy
GCOV ?= gcov
PROTOC_C ?= protoc-c
BUILD ?= build
PREFIX ?= /usr/local
OPT ?= -O3
WERROR ?= 0
V ?= 0
FUZZ_SECONDS ?= 30
Q := $(if $(filter 1,$(V)),,@)
comma := ,
say = $(if $(filter 1,$(V)),,@printf '  %-6s %s\n' $(1) $(2))

VARIANTS := release debug asan tsan fuzz cov

# ---- sources: what is in the folder is built -------------------------------------------------
# The core decides and does no I/O; what does I/O in base/ is in its own archive, "shell".
SHELL_SRC := $(wildcard base/log.c base/file.c base/prom.c base/listen.c \
	base/option_table.c)
CORE_SRC := $(filter-out $(SHELL_SRC),$(wildcard $(addsuffix /*.c,\
	base state fragmentation binpack policy)))
KUBE_SRC := $(wildcard kube/*.c)
EXTENDER_SRC := $(filter-out extender/main.c,$(wildcard extender/*.c))
REPLAY_SRC := $(filter-out replay/main.c,$(wildcard replay/*.c))
ENFORCER_SRC := $(filter-out enforcer/main.c enforcer/hook_main.c,$(wildcard enforcer/*.c))
# Written by protoc-c to $(BUILD)/gen, included as "enforcer/<name>.pb-c.h".
PROTO := $(wildcard enforcer/*.proto)
PROTO_HDR := $(PROTO:%.proto=$(BUILD)/gen/%.pb-c.h)

# Programs are named after the folder that has a main.c.
PROGRAMS := $(patsubst %/main.c,tessera-%,$(wildcard \
	extender/main.c replay/main.c enforcer/main.c)) \
	$(patsubst enforcer/hook_main.c,tessera-hook,$(wildcard enforcer/hook_main.c))

# Stand-ins for the driver's library and tools, built under the names of those.
FAKE_NVML_SRC := $(wildcard test/lib/fake_nvml*.c)
FAKE_SRC := $(FAKE_NVML_SRC) $(wildcard test/lib/fake_mps*.c test/lib/fake_smi.c)
FAKES := libnvidia-ml.so.1 nvidia-smi nvidia-cuda-mps-control nvidia-cuda-mps-server
TEST_LIB_SRC := $(filter-out $(FAKE_SRC),$(wildcard test/lib/*.c))
UNIT_SRC := $(wildcard test/unit/*.c)
GOLDEN_SRC := $(wildcard test/golden/*.c)
MODEL_SRC := $(wildcard test/model/*.c)
STRESS_SRC := $(wildcard test/stress/*.c)
FUZZ_SRC := $(wildcard test/fuzz/fuzz_*.c)
BENCH_SRC := $(wildcard bench/bench_*.c)
BENCH_LIB_SRC := $(filter-out $(BENCH_SRC),$(wildcard bench/*.c))

# The Criterion programs that exist, and the single-file programs.
SUITES := $(if $(UNIT_SRC),unit-tests) $(if $(GOLDEN_SRC),golden-tests) \
	$(if $(MODEL_SRC),model-tests)
STRESS := $(patsubst test/stress/%.c,stress/%,$(STRESS_SRC))
FUZZERS := $(patsubst test/fuzz/%.c,%,$(FUZZ_SRC))
BENCHES := $(patsubst bench/%.c,bench/%,$(BENCH_SRC))

FOLDERS := base state fragmentation binpack policy kube extender enforcer replay bench \
	$(addprefix test/,lib unit golden model stress fuzz canary gpu)
ALL_SRC := $(wildcard $(addsuffix /*.c,$(FOLDERS)))
ALL_HDR := $(wildcard $(addsuffix /*.h,$(FOLDERS)))

# ---- flags -----------------------------------------------------------------------------------
WARNINGS := -Wall -Wextra -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes \
	-Wformat=2 -Wimplicit-fallthrough -Wcast-qual -Wwrite-strings -Wvla -Wundef \
	$(if $(filter 1,$(WERROR)),-Werror)
COMMON := -std=gnu11 -D_GNU_SOURCE -I. $(WARNINGS) -g -fno-omit-frame-pointer -pthread
HARDEN := -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2 -fstack-protector-strong -fPIE
SAN := -fsanitize=address,undefined -fno-sanitize-recover=all

release_CC = $(CC)
release_FLAGS := $(OPT) $(HARDEN)
release_LINK := -pie -Wl,-z,relro,-z,now
debug_CC = $(CC)
debug_FLAGS := -O0
asan_CC = $(CC)
asan_FLAGS := -O1 $(SAN)
asan_LINK := $(SAN)
tsan_CC = $(CC)
tsan_FLAGS := -O1 -fsanitize=thread -fPIE
tsan_LINK := -fsanitize=thread -pie
fuzz_CC = $(FUZZ_CC)
fuzz_FLAGS := -O1 -fsanitize=fuzzer-no-link $(SAN)
fuzz_LINK := -fsanitize=fuzzer $(SAN)
cov_CC = $(CC)
cov_FLAGS := -O0 --coverage
cov_LINK := --coverage

LIBS := -Wl,--as-needed -lmicrohttpd -lgnutls -lcjson -lcurl -lyaml -lz -lprotobuf-c -lm -pthread
# Allocation calls of our own code go through test/lib/oom.c in the Criterion programs.
WRAP := -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=reallocarray,--wrap=strdup \
	-Wl,--wrap=strndup

.PHONY: all test check demo deps bench fuzz asan tsan cov e2e gpu deps-check banned format \
	format-check headers tidy install clean help corpus canary-leak programs tests stress \
	fuzzers replays benches FORCE
.DELETE_ON_ERROR:
.SUFFIXES:
.SECONDARY:

all: programs ## build the programs (release); the default

# ---- one set of rules for each variant -------------------------------------------------------
# $(1) variant; $(call objs,variant,sources)
objs = $(patsubst %.c,$(BUILD)/$(1)/obj/%.o,$(2))
ARCHIVES := replay extender enforcer kube shell core
libs = $(patsubst %,$(BUILD)/$(1)/libtessera-%.a,$(ARCHIVES))
# $(call link,variant,extra libraries): prerequisites that are not objects or archives are skipped
link = $(Q)$($(1)_CC) $(COMMON) $($(1)_FLAGS) $(CFLAGS) $($(1)_LINK) $(LDFLAGS) -o $@ \
	$(filter %.o,$^) -Wl,--start-group $(filter %.a,$^) -Wl,--end-group $(2) $(LIBS)

define VARIANT_RULES
# Rewritten only when its content changes: the compiler with its flags, and the list of sources.
$(BUILD)/$(1)/.flags: FORCE
	@mkdir -p $$(@D); t='$($(1)_CC) $(COMMON) $($(1)_FLAGS) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS)'; \
	[ "$$$$(cat $$@ 2>/dev/null)" = "$$$$t" ] || printf '%s\n' "$$$$t" >$$@
$(BUILD)/$(1)/.sources: FORCE
	@mkdir -p $$(@D); t='$(ALL_SRC)'; \
	[ "$$$$(cat $$@ 2>/dev/null)" = "$$$$t" ] || printf '%s\n' "$$$$t" >$$@

$(BUILD)/$(1)/obj/%.o: %.c $(BUILD)/$(1)/.flags | $(PROTO_HDR)
	$$(call say,CC,$$@)
	@mkdir -p $$(@D)
	$$(Q)$($(1)_CC) $(COMMON) -I$(BUILD)/gen $($(1)_FLAGS) $(CPPFLAGS) $(CFLAGS) -MMD -MP \
		-c -o $$@ $$<

# What a generator wrote is not held to our warnings.
$(BUILD)/$(1)/obj/gen/%.o: $(BUILD)/gen/%.c $(BUILD)/$(1)/.flags
	$$(call say,CC,$$@)
	@mkdir -p $$(@D)
	$$(Q)$($(1)_CC) $(COMMON) -w -I$(BUILD)/gen $($(1)_FLAGS) $(CPPFLAGS) $(CFLAGS) -c -o $$@ $$<

$(BUILD)/$(1)/libtessera-core.a: $(call objs,$(1),$(CORE_SRC))
$(BUILD)/$(1)/libtessera-shell.a: $(call objs,$(1),$(SHELL_SRC))
$(BUILD)/$(1)/libtessera-kube.a: $(call objs,$(1),$(KUBE_SRC))
$(BUILD)/$(1)/libtessera-extender.a: $(call objs,$(1),$(EXTENDER_SRC))
$(BUILD)/$(1)/libtessera-replay.a: $(call objs,$(1),$(REPLAY_SRC))
$(BUILD)/$(1)/libtessera-enforcer.a: $(call objs,$(1),$(ENFORCER_SRC)) \
	$(PROTO:%.proto=$(BUILD)/$(1)/obj/gen/%.pb-c.o)
$(BUILD)/$(1)/libtessera-test.a: $(call objs,$(1),$(TEST_LIB_SRC))
$(call libs,$(1)) $(BUILD)/$(1)/libtessera-test.a: $(BUILD)/$(1)/.sources
	$$(call say,AR,$$@)
	$$(Q)rm -f $$@ && $(AR) rcs $$@ $$(filter %.o,$$^)

$(BUILD)/$(1)/tessera-%: $(BUILD)/$(1)/obj/%/main.o $(call libs,$(1))
	$$(call say,LINK,$$@)
	$$(call link,$(1))

# The hook runs on hosts that have none of our libraries.
$(BUILD)/$(1)/tessera-hook: $(BUILD)/$(1)/obj/enforcer/hook_main.o \
		$(filter %-enforcer.a %-shell.a %-core.a,$(call libs,$(1)))
	$$(call say,LINK,$$@)
	$$(Q)$($(1)_CC) $(COMMON) $($(1)_FLAGS) $(CFLAGS) \
		$(if $(filter release,$(1)),-static,$($(1)_LINK)) $(LDFLAGS) -o $$@ $$^

$(BUILD)/$(1)/unit-tests: $(call objs,$(1),$(UNIT_SRC))
$(BUILD)/$(1)/golden-tests: $(call objs,$(1),$(GOLDEN_SRC))
$(BUILD)/$(1)/model-tests: $(call objs,$(1),$(MODEL_SRC))
$(addprefix $(BUILD)/$(1)/,unit-tests golden-tests model-tests): \
		$(call objs,$(1),$(TEST_LIB_SRC)) $(call libs,$(1)) $(BUILD)/$(1)/.sources
	$$(call say,LINK,$$@)
	$$(call link,$(1),$$(WRAP) -lcriterion)

# What these take from test/lib comes from its archive: oom.c stays out, which needs $(WRAP).
$(BUILD)/$(1)/stress/%: $(BUILD)/$(1)/obj/test/stress/%.o $(BUILD)/$(1)/libtessera-test.a \
		$(call libs,$(1))
	$$(call say,LINK,$$@)
	@mkdir -p $$(@D)
	$$(call link,$(1))

$(BUILD)/$(1)/libnvidia-ml.so.1: $(FAKE_NVML_SRC) $(BUILD)/$(1)/.flags
	$$(call say,FAKE,$$@)
	$$(Q)$($(1)_CC) $(COMMON) $($(1)_FLAGS) $(CFLAGS) $(filter-out -pie,$($(1)_LINK)) -fPIC \
		-shared -Wl,-Bsymbolic -o $$@ $$(filter %.c,$$^)
$(BUILD)/$(1)/nvidia-smi: $(call objs,$(1),test/lib/fake_smi.c) $(BUILD)/$(1)/libnvidia-ml.so.1
	$$(call say,FAKE,$$@)
	$$(call link,$(1),-L$$(@D) -l:libnvidia-ml.so.1 -Wl$$(comma)-rpath$$(comma)'$$$$ORIGIN')
$(BUILD)/$(1)/nvidia-cuda-mps-control: $(call objs,$(1),$(filter test/lib/fake_mps%,$(FAKE_SRC)))
	$$(call say,FAKE,$$@)
	$$(call link,$(1))
$(BUILD)/$(1)/nvidia-cuda-mps-server: $(BUILD)/$(1)/nvidia-cuda-mps-control
	$$(Q)ln -f $$< $$@
# Some of its tests run the programs as they are called, the agent on these.
$(BUILD)/$(1)/unit-tests: | $(addprefix $(BUILD)/$(1)/,$(FAKES) $(PROGRAMS))

# Programs that must fail: they prove that the sanitizers of the test runs see something.
$(BUILD)/$(1)/canary/%: $(BUILD)/$(1)/obj/test/canary/%.o
	$$(call say,LINK,$$@)
	@mkdir -p $$(@D)
	$$(call link,$(1),-lcriterion)

# The same fuzz target with a plain main() that reads files: no libFuzzer, any compiler.
$(BUILD)/$(1)/corpus/%: $(BUILD)/$(1)/obj/test/fuzz/%.o $(BUILD)/$(1)/obj/test/fuzz/replay_main.o \
		$(call libs,$(1))
	$$(call say,LINK,$$@)
	@mkdir -p $$(@D)
	$$(call link,$(1))

# The acceptance test on a real GPU: a program over our archives, and a CUDA client.
$(BUILD)/$(1)/gpu/%: $(BUILD)/$(1)/obj/test/gpu/%.o $(call libs,$(1))
	$$(call say,LINK,$$@)
	@mkdir -p $$(@D)
	$$(call link,$(1))

$(BUILD)/$(1)/bench/%: $(BUILD)/$(1)/obj/bench/%.o $(call objs,$(1),$(BENCH_LIB_SRC)) \
		$(BUILD)/$(1)/libtessera-test.a $(call libs,$(1))
	$$(call say,LINK,$$@)
	@mkdir -p $$(@D)
	$$(call link,$(1))
endef
$(foreach v,$(VARIANTS),$(eval $(call VARIANT_RULES,$(v))))

$(BUILD)/gen/%.pb-c.c $(BUILD)/gen/%.pb-c.h: %.proto
	$(call say,PROTO,$<)
	@mkdir -p $(BUILD)/gen
	$(Q)$(PROTOC_C) --c_out=$(BUILD)/gen $<

$(BUILD)/fuzz/fuzz_%: $(BUILD)/fuzz/obj/test/fuzz/fuzz_%.o $(call libs,fuzz)
	$(call say,LINK,$@)
	$(call link,fuzz)

-include $(foreach v,$(VARIANTS),$(patsubst %.o,%.d,$(call objs,$(v),$(ALL_SRC) \
	extender/main.c replay/main.c enforcer/main.c enforcer/hook_main.c)))

# ---- groups: VARIANT=asan and so on chooses which build --------------------------------------
VARIANT ?= debug

programs: $(call libs,release) $(addprefix $(BUILD)/release/,$(PROGRAMS))
	$(Q)for p in $(PROGRAMS); do ln -sf release/$$p $(BUILD)/$$p; done

tests: $(addprefix $(BUILD)/$(VARIANT)/,$(SUITES)) ## build the Criterion programs (VARIANT=debug)
stress: $(addprefix $(BUILD)/$(VARIANT)/,$(STRESS))
replays: $(addprefix $(BUILD)/$(VARIANT)/corpus/,$(FUZZERS))
fuzzers: $(addprefix $(BUILD)/fuzz/,$(FUZZERS))
benches: $(addprefix $(BUILD)/release/,$(BENCHES))

# ---- running ---------------------------------------------------------------------------------
test: tests ## unit, golden and model tests (VARIANT=debug)
	$(Q)BUILD=$(BUILD) test/run.sh suites $(VARIANT) $(SUITES)

corpus: replays ## replay test/corpus through the fuzz targets (VARIANT=debug)
	$(Q)BUILD=$(BUILD) test/run.sh corpus $(VARIANT) $(FUZZERS)

canary-leak: $(BUILD)/asan/canary/leak
	$(Q)BUILD=$(BUILD) test/run.sh canary asan leak

asan: ## tests, corpus replay and leak canary under ASan and UBSan
	$(Q)$(MAKE) --no-print-directory VARIANT=asan test corpus canary-leak

tsan: $(addprefix $(BUILD)/tsan/,$(STRESS) canary/race) ## stress programs under TSan
	$(Q)BUILD=$(BUILD) test/run.sh stress tsan $(STRESS)
	$(Q)BUILD=$(BUILD) test/run.sh canary tsan race

fuzz: fuzzers ## each fuzz target for FUZZ_SECONDS=30 (clang)
	$(Q)BUILD=$(BUILD) FUZZ_SECONDS=$(FUZZ_SECONDS) test/run.sh fuzz $(FUZZERS)

cov: $(addprefix $(BUILD)/cov/,$(SUITES)) ## line coverage of the Criterion tests
	$(Q)find $(BUILD)/cov -name '*.gcda' -delete
	$(Q)BUILD=$(BUILD) test/run.sh suites cov $(SUITES)
	$(Q)$(GCOV) -n $(call objs,cov,$(CORE_SRC) $(SHELL_SRC) $(KUBE_SRC) $(EXTENDER_SRC) \
		$(REPLAY_SRC) $(ENFORCER_SRC)) 2>/dev/null | awk -F"'" '/^File/ { f = $$2 } \
		/^Lines executed/ && f !~ /^\// { print $$0 "  " f; f = "/" }'

check: ## everything: style, both compilers, all tests and sanitizers
	$(Q)BUILD=$(BUILD) test/check.sh

bench: all benches $(addprefix $(BUILD)/release/,$(FAKES)) ## build and run the benchmarks
	$(Q)BUILD=$(BUILD) bench/run.sh

demo: deps ## install what is missing, build, show the extender at work
	$(Q)$(MAKE) --no-print-directory all
	$(Q)BUILD=$(BUILD) deploy/demo/demo.sh

gpu: $(addprefix $(BUILD)/release/gpu/,accept client) ## acceptance test on a real GPU; skipped without one
	$(Q)BUILD=$(BUILD) test/gpu/accept.sh || [ $$? -eq 77 ]

e2e: all $(addprefix $(BUILD)/release/,$(FAKES)) ## end to end: real control plane, real containerd (needs Go)
	$(Q)BUILD=$(abspath $(BUILD)) test/e2e/run.sh

deps: ## install the packages that are missing (Debian, Ubuntu)
	$(Q)deploy/deps.sh

# ---- checks of the text ----------------------------------------------------------------------
deps-check: $(BUILD)/release/libtessera-core.a ## direction of includes, symbols of the core
	$(Q)test/deps_check.sh $<

banned: ## functions that must not be called, no floats in the core
	$(Q)test/banned.sh

format: ## reformat all sources
	$(Q)$(CLANG_FORMAT) -i $(ALL_SRC) $(ALL_HDR)

format-check: ## fail where `make format` would change something
	$(Q)$(CLANG_FORMAT) --dry-run -Werror $(ALL_SRC) $(ALL_HDR)

headers: $(PROTO_HDR) ## every header compiles alone
	$(Q)for h in $(ALL_HDR); do \
		$(CC) $(COMMON) -I$(BUILD)/gen -Wno-unused-function -fsyntax-only -x c $$h || exit 1; done

# What is shipped; one stamp a file, so that -j works and only changed files are looked at again.
TIDY_SRC := $(filter-out test/%,$(ALL_SRC))
tidy: $(patsubst %,$(BUILD)/tidy/%.ok,$(TIDY_SRC)) ## clang-tidy over all that is shipped
$(BUILD)/tidy/%.ok: % $(ALL_HDR) .clang-tidy | $(PROTO_HDR)
	$(call say,TIDY,$<)
	@mkdir -p $(@D)
	$(Q)$(CLANG_TIDY) --quiet $< -- -std=gnu11 -D_GNU_SOURCE -I. -I$(BUILD)/gen 2>/dev/null
	@touch $@

# ---- the rest --------------------------------------------------------------------------------
install: all ## install the programs to $(DESTDIR)$(PREFIX)/bin
	install -d $(DESTDIR)$(PREFIX)/bin
	for p in $(PROGRAMS); do install -m 755 $(BUILD)/release/$$p $(DESTDIR)$(PREFIX)/bin/ || exit 1; done

clean: ## remove everything that was built
	rm -rf $(BUILD)

help: ## this list
	@awk -F ':.*## ' '/^[a-z][a-z0-9-]*:.*## / { sub(/:.*/, "", $$1); printf "  %-14s %s\n", $$1, $$2 }' \
		$(firstword $(MAKEFILE_LIST))
