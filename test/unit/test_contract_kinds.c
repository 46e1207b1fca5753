#include <criterion/criterion.h>
#include <string.h>

#include "test/lib/contract_rows.h"

#define C "nvidia.com/container."
#define T "tessera.dev/container."

Test(contract_kinds, whole)
{
	static const struct contract_row rows[] = {
		{"", "main", "", NULL},
		{"", "", "", NULL},
		{"", "main[nvidia.com/gpu=2]", "main=whole:2", NULL},
		{"", "a[nvidia.com/gpu=2] b c[nvidia.com/gpu=1]", "a=whole:2 c=whole:1", NULL},
		{"", "main[nvidia.com/gpu=0]", "", NULL},
		{"", "main[nvidia.com/gpu=16]", "main=whole:16", NULL},
		{"", "main[nvidia.com/gpu=17]",
		 "!container \"main\": nvidia.com/gpu: \"17\" is above 16", NULL},
		{"", "main[nvidia.com/gpu=1k]",
		 "!container \"main\": nvidia.com/gpu: \"1k\" is above 16", NULL},
		{"", "main[nvidia.com/gpu=18446744073709551617]",
		 "!container \"main\": nvidia.com/gpu: \"18446744073709551617\" is above 16", NULL},
		{"", "main[nvidia.com/gpu=1500m]",
		 "!container \"main\": nvidia.com/gpu: \"1500m\" is not an integer", NULL},
		{"", "main[nvidia.com/gpu=-1]",
		 "!container \"main\": nvidia.com/gpu: quantity \"-1\" is negative", NULL},
		{"", "main[nvidia.com/gpu=some]",
		 "!container \"main\": nvidia.com/gpu: quantity \"some\" does not start with a number",
		 NULL},
		{"", "a[nvidia.com/gpu=9] b[nvidia.com/gpu=8]",
		 "!nvidia.com/gpu: 17 in all containers, at most 16 are supported", NULL},
		{"gpu-fraction=0.5", "main[nvidia.com/gpu=1]",
		 "!gpu-fraction: \"0.5\" is a share, but container \"main\" has whole GPUs "
		 "(nvidia.com/gpu) too",
		 NULL},
		{C "main.gpu-memory.limit=1Gi", "main[nvidia.com/gpu=1]",
		 "!" C
		 "main.gpu-memory.limit: \"1Gi\" is a share, but container \"main\" has whole "
		 "GPUs (nvidia.com/gpu) too",
		 NULL},
		{"gpu-fraction=0.5", "main side[nvidia.com/gpu=1]",
		 "main=share:time-slicing:1x0.5 side=whole:1", NULL},
		{"", "main[nvidia.com/gpu.shared=1,example.com/gpu=1,cpu=1]", "", NULL},
		{"", "a[nvidia.com/gpu=1] a", "!container \"a\" is there twice", NULL},
		{"", "A[nvidia.com/gpu=1]", "!container \"A\": the name is not a DNS label", NULL},
		{"", "-a[nvidia.com/gpu=1]", "!container \"-a\": the name is not a DNS label",
		 NULL},
		{"gpu-fraction=0.5", "a_b", "!container \"a_b\": the name is not a DNS label",
		 NULL},
		{"gpu-fraction=0.5",
		 "a23456789-123456789-123456789-123456789-123456789-123456789-1234",
		 "!container \"a23456789-123456789-123456789-123456789-123456789-123456789-1234\": "
		 "the name is not a DNS label",
		 NULL},
		{"",
		 "a[nvidia.com/gpu=1] b[nvidia.com/gpu=1] c[nvidia.com/gpu=1] "
		 "d[nvidia.com/gpu=1] e[nvidia.com/gpu=1] f[nvidia.com/gpu=1] "
		 "g[nvidia.com/gpu=1] h[nvidia.com/gpu=1] i[nvidia.com/gpu=1]",
		 "!more than 8 containers ask for a GPU", NULL},
	};

	CHECK_ROWS(rows, NULL);
}

Test(contract_kinds, mig_by_memory)
{
	static const struct contract_row rows[] = {
		{T "main.mig-memory=9000", "main", "main=mig:1x9000Mi", NULL},
		{T "main.mig-memory=10Gi", "main", "main=mig:1x10240Mi", NULL},
		{T "main.mig-memory=0", "main",
		 "!" T "main.mig-memory: \"0\" is not in 1..2147483647 MiB", NULL},
		{T "main.mig-memory=much", "main",
		 "!" T "main.mig-memory: quantity \"much\" does "
		 "not start with a number",
		 NULL},
		{T "main.mig-memory=9000\n" T "main.mig-profile=1g.10gb", "main",
		 "!" T "main.mig-memory: \"9000\" together with a MIG profile (" T
		 "main.mig-profile); only one of them can be given",
		 NULL},
		{T "main.mig-memory=9000", "main[nvidia.com/gpu=1]",
		 "!" T "main.mig-memory: \"9000\" cannot be combined with nvidia.com/gpu in "
		 "container \"main\"",
		 NULL},
		{T "main.mig-memory=9000\n" C "main.gpu-compute.mode=sm-sharing", "main",
		 "!" C
		 "main.gpu-compute.mode: \"sm-sharing\" is for container \"main\", which gets "
		 "a MIG instance: MPS inside a MIG instance is not supported, its memory limits do "
		 "not hold there",
		 NULL},
	};

	CHECK_ROWS(rows, NULL);
}

#define HARD "tessera.dev/isolation=hardware"

Test(contract_kinds, isolation_by_hardware)
{
	static const struct contract_row off[] = {
		{HARD "\ngpu-memory=9000", "main",
		 "!tessera.dev/isolation: \"hardware\" asks for a MIG instance for the share of "
		 "container \"main\", and serving shares by MIG is switched off",
		 NULL},
		{HARD, "main[nvidia.com/gpu=1]", "main=whole:1", NULL},
		{HARD, "main[nvidia.com/mig-1g.5gb=1]", "main=mig:1x1g.5gb", NULL},
		{"tessera.dev/isolation=soft\ngpu-memory=9000", "main",
		 "!tessera.dev/isolation: \"soft\" is not hardware", NULL},
	};
	static const struct contract_row on[] = {
		{HARD "\ngpu-memory=9000", "main", "main=mig:1x9000Mi", NULL},
		{HARD "\ngpu-fraction=0.25\ngpu-fraction-num-devices=2", "main",
		 "main=mig:2x0.25:apart", NULL},
		{HARD "\ngpu-memory=9000\ngpu-memory.limit=10Gi", "main", "main=mig:1x9000Mi",
		 "makes the limit that of the MIG instance"},
		{HARD "\ngpu-memory=9000\n" C "main.gpu-compute.request=0.5", "main",
		 "!" C "main.gpu-compute.request: \"0.5\" cannot be combined with isolation: "
		 "hardware: the MIG instance decides on compute",
		 NULL},
		{HARD "\ngpu-memory=9000\n" C "main.gpu-compute.mode=sm-sharing", "main",
		 "!" C
		 "main.gpu-compute.mode: \"sm-sharing\" is for container \"main\", which gets "
		 "a MIG instance: MPS inside a MIG instance is not supported, its memory limits do "
		 "not hold there",
		 NULL},
	};
	const struct st_contract_options opt = {.mig_isolation = true};

	CHECK_ROWS(off, NULL);
	CHECK_ROWS(on, &opt);
}

Test(contract_kinds, mig)
{
	static const struct contract_row rows[] = {
		{T "main.mig-profile=1g.10gb", "main", "main=mig:1x1g.10gb", NULL},
		{T "main.mig-profile=1g.10gb+me", "main", "main=mig:1x1g.10gb+me", NULL},
		{T "main.mig-profile=2g.48gb+me.all", "main", "main=mig:1x2g.48gb+me.all", NULL},
		{T "main.mig-profile=1g.24gb-me", "main", "main=mig:1x1g.24gb-me", NULL},
		{T "main.mig-profile=1g.10gb", "main[nvidia.com/mig-1g.10gb=1]",
		 "main=mig:1x1g.10gb", NULL},
		{"", "main[nvidia.com/mig-3g.40gb=1]", "main=mig:1x3g.40gb", NULL},
		{"", "main[nvidia.com/mig-1g.5gb.me=1]", "main=mig:1x1g.5gb+me", NULL},
		{"", "main[nvidia.com/mig-1g.24gb.me.all=1]", "main=mig:1x1g.24gb+me.all", NULL},
		{"", "main[nvidia.com/mig-1g.24gb-me=1]", "main=mig:1x1g.24gb-me", NULL},
		{"", "main[nvidia.com/mig-1g.10gb=0]", "", NULL},
		{"", "main[nvidia.com/mig-1g.10gb=17]",
		 "!container \"main\": nvidia.com/mig-1g.10gb: \"17\" is above 16", NULL},
		{"", "main[nvidia.com/mig-1g.10gb=1,nvidia.com/mig-2g.20gb=1]",
		 "!container \"main\": nvidia.com/mig-2g.20gb: \"1\" beside another MIG profile: one "
		 "profile a container",
		 NULL},
		{"", "main[nvidia.com/mig-small=1]",
		 "!container \"main\": nvidia.com/mig-small: \"1\" is not for a MIG profile such as "
		 "nvidia.com/mig-1g.10gb",
		 NULL},
		{"", "main[nvidia.com/mig-1g.10gb-and-a-tail-that-is-long=1]",
		 "!container \"main\": nvidia.com/mig-1g.10gb-and-a-tail-that-is-long: \"1\" is not "
		 "for a MIG profile such as nvidia.com/mig-1g.10gb",
		 NULL},
		{T "main.mig-profile=big", "main",
		 "!" T
		 "main.mig-profile: \"big\" is not a MIG profile such as 1g.10gb or 1g.10gb+me",
		 NULL},
		{T "main.mig-profile=1c.1g.10gb", "main",
		 "!" T "main.mig-profile: \"1c.1g.10gb\" is not a MIG profile such as 1g.10gb or "
		 "1g.10gb+me",
		 NULL},
		{T "main.mig-profile=1g.10gb+", "main",
		 "!" T "main.mig-profile: \"1g.10gb+\" is not a MIG profile such as 1g.10gb or "
		 "1g.10gb+me",
		 NULL},
		{T "main.mig-profile=01g.10gb", "main",
		 "!" T "main.mig-profile: \"01g.10gb\" is not a MIG profile such as 1g.10gb or "
		 "1g.10gb+me",
		 NULL},
		{T "none.mig-profile=1g.10gb", "main",
		 "!" T
		 "none.mig-profile: \"1g.10gb\" is for container \"none\", which the pod does not "
		 "have",
		 NULL},
		{T "main.mig-profile=1g.10gb", "main[nvidia.com/mig-2g.20gb=1]",
		 "!" T
		 "main.mig-profile: \"1g.10gb\" is another profile than nvidia.com/mig-2g.20gb",
		 NULL},
		{T "main.mig-profile=1g.10gb", "main[nvidia.com/gpu=1]",
		 "!" T "main.mig-profile: \"1g.10gb\" cannot be combined with nvidia.com/gpu in "
		 "container \"main\"",
		 NULL},
		{T "main.mig-profile=1g.10gb\ngpu-memory=100", "main",
		 "!" T
		 "main.mig-profile: \"1g.10gb\" cannot be combined with gpu-memory in container "
		 "\"main\"",
		 NULL},
		{"gpu-memory=100", "main[nvidia.com/mig-1g.10gb=1]",
		 "!nvidia.com/mig-1g.10gb: \"1\" cannot be combined with gpu-memory in container "
		 "\"main\"",
		 NULL},
		{"gpu-fraction-num-devices=2\n" T "main.mig-profile=1g.10gb", "main",
		 "!gpu-fraction-num-devices: \"2\" needs gpu-fraction or gpu-memory for container "
		 "\"main\"",
		 NULL},
		{C "main.gpu-memory.request=1Gi", "main side[nvidia.com/mig-1g.10gb=1]",
		 "main=share:time-slicing:1x1024Mi side=mig:1x1g.10gb", NULL},
		{T "main.mig-profil=1g.10gb", "main", "", "there is no such key"},
	};

	CHECK_ROWS(rows, NULL);
}

Test(contract_kinds, hami)
{
	static const struct st_contract_options on = {.hami = true};
	static const struct contract_row rows[] = {
		{"", "main[nvidia.com/gpu=1,nvidia.com/gpumem=3000]",
		 "main=share:time-slicing:1x3000Mi", NULL},
		{"", "main[nvidia.com/gpu=2,nvidia.com/gpumem=3k]",
		 "main=share:time-slicing:2x3000Mi", NULL},
		{"", "main[nvidia.com/gpumem=3000]", "main=share:time-slicing:1x3000Mi", NULL},
		{"", "main[nvidia.com/gpu=1,nvidia.com/gpumem-percentage=25]",
		 "main=share:time-slicing:1x0.25", NULL},
		{"", "main[nvidia.com/gpu=1,nvidia.com/gpumem-percentage=100]",
		 "main=share:time-slicing:1x1", NULL},
		{"", "main[nvidia.com/gpu=1,nvidia.com/gpumem=3000,nvidia.com/gpucores=30]",
		 "main=share:sm-sharing:1x3000Mi:c0.3", NULL},
		{"", "main[nvidia.com/gpu=1,nvidia.com/gpucores=30]",
		 "main=share:sm-sharing:1x1:c0.3", NULL},
		{"", "main[nvidia.com/gpu=2,nvidia.com/gpucores=100]", "main=whole:2", NULL},
		{"", "main[nvidia.com/gpu=1,nvidia.com/gpumem=3000,nvidia.com/gpucores=100]",
		 "main=whole:1", "nvidia.com/gpucores: \"100\" gives the container its GPUs whole"},
		{"", "main[nvidia.com/gpu=1]", "main=whole:1", NULL},
		{"", "main[nvidia.com/gpu=1,nvidia.com/gpumem=0,nvidia.com/gpucores=0]",
		 "main=whole:1", NULL},
		{"", "main[nvidia.com/gpu=1,nvidia.com/gpumem-percentage=101]",
		 "!container \"main\": nvidia.com/gpumem-percentage: \"101\" is above 100", NULL},
		{"", "main[nvidia.com/gpu=1,nvidia.com/gpucores=101]",
		 "!container \"main\": nvidia.com/gpucores: \"101\" is above 100", NULL},
		{"", "main[nvidia.com/gpu=0,nvidia.com/gpumem=3000]",
		 "!container \"main\": nvidia.com/gpu: \"0\" is no GPU, but the container asks for "
		 "memory or cores of one",
		 NULL},
		{"", "main[nvidia.com/gpumem=3000,nvidia.com/gpumem-percentage=50]",
		 "!container \"main\": nvidia.com/gpumem-percentage: \"50\" together with "
		 "nvidia.com/gpumem; only one of them can be given",
		 NULL},
		{"gpu-memory=100", "main[nvidia.com/gpumem=3000]",
		 "!gpu-memory: \"100\" is a second share for this container beside nvidia.com/gpumem",
		 NULL},
		{T "main.mig-profile=1g.10gb", "main[nvidia.com/gpumem=3000]",
		 "!" T "main.mig-profile: \"1g.10gb\" cannot be combined with nvidia.com/gpumem in "
		 "container \"main\"",
		 NULL},
		{"gpu-fraction-num-devices=2", "main[nvidia.com/gpumem=3000]",
		 "!gpu-fraction-num-devices: \"2\" needs gpu-fraction or gpu-memory for container "
		 "\"main\"",
		 NULL},
		{C "main.gpu-compute.mode=time-slicing",
		 "main[nvidia.com/gpumem=3000,nvidia.com/gpucores=30]",
		 "main=share:time-slicing:1x3000Mi:c0.3", NULL},
		{C "main.gpu-compute.request=0.5",
		 "main[nvidia.com/gpumem=3000,nvidia.com/gpucores=30]",
		 "!" C "main.gpu-compute.request: \"0.5\" is a second compute share beside "
		 "nvidia.com/gpucores",
		 NULL},
	};
	static const struct contract_row off[] = {
		{"", "main[nvidia.com/gpu=1,nvidia.com/gpumem=3000]", "main=whole:1",
		 "nvidia.com/gpumem: \"3000\" has no effect: HAMi's resource names are switched off"},
	};

	CHECK_ROWS(rows, &on);
	CHECK_ROWS(off, NULL);
}

/* Keys that a bind wrote, on a pod that is bound or was copied from one. */
Test(contract_kinds, leftover)
{
#define LEFT "tessera.dev/allocation=v1;n;0123456789abcdef;main=drlm\n"
#define LEFT_KEYS                                                                                  \
	LEFT C "main.gpus.devices=GPU-1\n" C "main.gpu-memory.request=100Mi\n" C                   \
	       "main.gpu-memory.limit=200Mi\n"
	static const struct contract_row rows[] = {
		{LEFT_KEYS C "main.gpu-compute.mode=time-slicing\ngpu-fraction=0.5", "main",
		 "main=share:time-slicing:1x0.5", NULL},
		{LEFT_KEYS C "main.gpu-compute.mode=sm-sharing\ngpu-memory=100", "main",
		 "main=share:sm-sharing:1x100Mi", NULL},
		{LEFT_KEYS C "main.gpu-compute.mode=exclusive", "main[nvidia.com/gpu=1]",
		 "main=whole:1", NULL},
		{LEFT C "main.gpu-compute.mode=mig\n" T "main.mig-placement=GPU-1/1g.10gb:0\n" T
			"main.mig-profile=1g.10gb",
		 "main", "main=mig:1x1g.10gb", NULL},
		{LEFT_KEYS C "main.gpu-compute.mode=sm-sharing", "main",
		 "main=share:sm-sharing:1x100/200Mi", NULL},
		{C "main.gpus.devices=GPU-1\n" C "none.gpus.devices=GPU-1\n" C
		   "none.gpu-compute.portion=1\ngpu-fraction=0.5",
		 "main", "main=share:time-slicing:1x0.5", NULL},
		{LEFT C "averylongcontain_0123456789ab.gpu-memory.request=1Mi", "main", "", NULL},
		/* Without the mark of the extender they are the user's. */
		{C "main.gpus.devices=GPU-1\n" C "main.gpu-memory.request=100Mi\ngpu-fraction=0.5",
		 "main",
		 "!" C "main.gpu-memory.request: \"100Mi\" is a second share for this "
		 "container beside gpu-fraction",
		 NULL},
		{LEFT C "main.gpu-memory.request=100Mi\ngpu-fraction=0.5", "main",
		 "!" C
		 "main.gpu-memory.request: \"100Mi\" is a second share for this container beside "
		 "gpu-fraction",
		 NULL},
	};

	CHECK_ROWS(rows, NULL);
}

Test(contract_kinds, prefix)
{
	static const struct st_contract_options own = {.prefix = "example.com/c."};
	static const struct contract_row rows[] = {
		{"example.com/c.main.gpu-memory.request=1Gi", "main",
		 "main=share:time-slicing:1x1024Mi", NULL},
		{C "main.gpu-memory.request=1Gi", "main", "", NULL},
		{T "main.mig-profile=1g.10gb", "main", "main=mig:1x1g.10gb", NULL},
	};

	CHECK_ROWS(rows, &own);
	cr_assert(st_contract_is_allocation_key("example.com/c.main.gpus.devices", &own));
	cr_assert_not(st_contract_is_allocation_key(C "main.gpus.devices", &own));
}

Test(contract_kinds, allocation_keys)
{
	cr_assert(st_contract_is_allocation_key("tessera.dev/allocation", NULL));
	cr_assert(st_contract_is_allocation_key(C "main.gpus.devices", NULL));
	cr_assert(st_contract_is_allocation_key(C "main.gpu-compute.portion", NULL));
	cr_assert(st_contract_is_allocation_key(T "main.mig-placement", NULL));
	/* Users write these, too. */
	cr_assert_not(st_contract_is_allocation_key(C "main.gpu-memory.request", NULL));
	cr_assert_not(st_contract_is_allocation_key(C "main.gpu-memory.limit", NULL));
	cr_assert_not(st_contract_is_allocation_key(C "main.gpu-compute.mode", NULL));
	cr_assert_not(st_contract_is_allocation_key(C "main.gpu-compute.request", NULL));
	cr_assert_not(st_contract_is_allocation_key(T "main.mig-profile", NULL));
	cr_assert_not(st_contract_is_allocation_key("gpu-fraction", NULL));
	cr_assert_not(st_contract_is_allocation_key("tessera.dev/allocation-time", NULL));
	cr_assert_not(st_contract_is_allocation_key("", NULL));
}

Test(contract_kinds, plugin_gpus)
{
	static const struct {
		const char *containers;
		uint32_t want;
	} rows[] = {
		{"main", 0},
		{"main[nvidia.com/gpu=2]", 2},
		{"a[nvidia.com/gpu=2] b[nvidia.com/gpu=1]", 3},
		{"i:warm[nvidia.com/gpu=4] main[nvidia.com/gpu=1]", 4},
		{"i:warm[nvidia.com/gpu=1] main[nvidia.com/gpu=2]", 2},
		{"s:side[nvidia.com/gpu=1] i:warm[nvidia.com/gpu=2] main[nvidia.com/gpu=1]", 3},
		{"i:warm[nvidia.com/gpu=2] s:side[nvidia.com/gpu=1] main[nvidia.com/gpu=1]", 2},
		{"s:side[nvidia.com/gpu=1]", 1},
		{"main[nvidia.com/gpu=broken]", 0},
		{"a[nvidia.com/gpu=4294967295] b[nvidia.com/gpu=4294967295]", UINT32_MAX},
		{"main[nvidia.com/gpu=1Ei]", UINT32_MAX},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct pod_text p;

		pod_text_init(&p, "", rows[i].containers);
		cr_expect_eq(st_contract_plugin_gpus(&p.spec), rows[i].want, "%s",
			     rows[i].containers);
	}
}

Test(contract_kinds, host_resources)
{
	struct st_request req;
	struct pod_text p;

	pod_text_init(&p, "gpu-fraction=0.5", "main side");
	p.containers[0].cpu_milli = 1500;
	p.containers[1].cpu_milli = 250;
	p.containers[0].mem_bytes = (INT64_C(1) << 30) + 1;
	cr_assert_eq(st_contract_parse(&p.spec, NULL, &req, NULL, NULL), 0);
	cr_assert_eq(req.cpu_milli, 1750);
	cr_assert_eq(req.mem_mib, 1025);
}

/* Hostile text comes back cut and printable. */
Test(contract_kinds, message_is_printable)
{
	struct st_request req;
	struct err err = ERR_INIT;
	struct pod_text p;
	char value[400] = "gpu-fraction=\x1b[31m\xff\xfe";

	memset(value + strlen(value), '9', 300);
	pod_text_init(&p, value, "main");
	cr_assert_eq(st_contract_parse(&p.spec, NULL, &req, NULL, &err), ERR_INVALID);
	for (const char *s = err.msg; *s != '\0'; s++)
		cr_assert(*s >= ' ' && *s <= '~', "byte %d", *s);
	cr_assert_lt(strlen(err.msg), 200);
}

Test(contract_kinds, many_warnings)
{
	struct st_warnings warn;
	struct st_request req;
	struct pod_text p;

	pod_text_init(
		&p,
		"tessera.dev/a=\ntessera.dev/b=\ntessera.dev/c=\ntessera.dev/d=\n"
		"tessera.dev/e=\ntessera.dev/f=\ntessera.dev/g=\ntessera.dev/h=\ntessera.dev/i=",
		"main");
	cr_assert_eq(st_contract_parse(&p.spec, NULL, &req, &warn, NULL), 0);
	cr_assert_eq(warn.count, ST_WARNINGS_MAX);
}
