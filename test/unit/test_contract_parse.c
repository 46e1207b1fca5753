#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "state/contract.h"
#include "test/lib/pod_text.h"

#define C "nvidia.com/container."
#define T "tessera.dev/container."

/* want is the request as text, or "!" and the whole error message; warning is a part of the first
 * warning, NULL = there must be none. */
struct row {
	const char *annotations, *containers, *want, *warning;
};

static void check_rows(const struct row *rows, size_t count, const struct st_contract_options *opt)
{
	for (size_t i = 0; i < count; i++) {
		const struct row *row = &rows[i];
		struct st_request req;
		struct st_warnings warn;
		struct err err = ERR_INIT;
		struct pod_text p;
		char text[1024], got[1024];
		int r;

		memset(&req, 0x5a, sizeof(req));
		pod_text_init(&p, row->annotations, row->containers);
		r = st_contract_parse(&p.spec, opt, &req, &warn, &err);
		snprintf(got, sizeof(got), "%s%s", r == 0 ? "" : "!",
			 r == 0 ? request_text(&req, text, sizeof(text)) : err.msg);
		cr_expect_str_eq(got, row->want, "row %zu (%s):\n got %s\nwant %s", i,
				 row->annotations, got, row->want);
		if (r != 0) {
			cr_expect(r == ERR_INVALID || r == ERR_RANGE, "row %zu: code %d", i, r);
			cr_expect_eq(((unsigned char *)&req)[0], 0x5a, "row %zu: written", i);
			continue;
		}
		if (row->warning == NULL)
			cr_expect_eq(warn.count, 0, "row %zu: warning %s", i, warn.text[0].msg);
		else
			cr_expect(warn.count > 0 && strstr(warn.text[0].msg, row->warning),
				  "row %zu: %zu warnings, \"%s\"", i, warn.count,
				  warn.count > 0 ? warn.text[0].msg : "");
		cr_expect_eq(st_contract_parse(&p.spec, opt, &req, NULL, NULL), 0);
	}
}

#define CHECK(rows, opt) check_rows(rows, sizeof(rows) / sizeof((rows)[0]), opt)

Test(contract_parse, fraction)
{
	static const struct row rows[] = {
		{"gpu-fraction=0.5", "main", "main=share:time-slicing:1x0.5", NULL},
		{"gpu-fraction=0.125", "main side", "main=share:time-slicing:1x0.125", NULL},
		{"gpu-fraction=.5", "main", "main=share:time-slicing:1x0.5", NULL},
		{"gpu-fraction=0.000000001", "main", "main=share:time-slicing:1x0.000000001", NULL},
		{"gpu-fraction=0.999999999", "main", "main=share:time-slicing:1x0.999999999", NULL},
		{"gpu-fraction=0.5000", "i:init main", "main=share:time-slicing:1x0.5", NULL},
		{"gpu-fraction=1", "main", "!gpu-fraction: \"1\" is not in (0, 1)", NULL},
		{"gpu-fraction=1.5", "main", "!gpu-fraction: \"1.5\" is not in (0, 1)", NULL},
		{"gpu-fraction=0", "main", "!gpu-fraction: \"0\" is not in (0, 1)", NULL},
		{"gpu-fraction=99999999999999999999", "main",
		 "!gpu-fraction: \"99999999999999999999\" is not in (0, 1)", NULL},
		{"gpu-fraction=-0.5", "main",
		 "!gpu-fraction: \"-0.5\" is not a plain decimal number", NULL},
		{"gpu-fraction=+0.5", "main",
		 "!gpu-fraction: \"+0.5\" is not a plain decimal number", NULL},
		{"gpu-fraction=", "main", "!gpu-fraction: \"\" is not a plain decimal number",
		 NULL},
		{"gpu-fraction= 0.5", "main",
		 "!gpu-fraction: \" 0.5\" is not a plain decimal number", NULL},
		{"gpu-fraction=NaN", "main", "!gpu-fraction: \"NaN\" is not a plain decimal number",
		 NULL},
		{"gpu-fraction=inf", "main", "!gpu-fraction: \"inf\" is not a plain decimal number",
		 NULL},
		{"gpu-fraction=0.5x", "main",
		 "!gpu-fraction: \"0.5x\" is not a plain decimal number", NULL},
		{"gpu-fraction=5e-1", "main",
		 "!gpu-fraction: \"5e-1\" is not a plain decimal number", NULL},
		{"gpu-fraction=0.1234567891", "main",
		 "!gpu-fraction: \"0.1234567891\" has more than 9 decimals", NULL},
		{"gpu-fraction=0.5\ngpu-fraction.limit=0.75", "main",
		 "main=share:time-slicing:1x0.5/0.75", NULL},
		{"gpu-fraction=0.5\ngpu-fraction.limit=1", "main",
		 "main=share:time-slicing:1x0.5/1", NULL},
		{"gpu-fraction=0.5\ngpu-fraction.limit=0.5", "main",
		 "!gpu-fraction.limit: \"0.5\" is not above gpu-fraction: \"0.5\"", NULL},
		{"gpu-fraction=0.5\ngpu-fraction.limit=0.25", "main",
		 "!gpu-fraction.limit: \"0.25\" is not above gpu-fraction: \"0.5\"", NULL},
		{"gpu-fraction=0.5\ngpu-fraction.limit=1.01", "main",
		 "!gpu-fraction.limit: \"1.01\" is not in (0, 1]", NULL},
		{"gpu-fraction.limit=0.5", "main",
		 "!gpu-fraction.limit: \"0.5\" needs gpu-fraction", NULL},
		{"gpu-fraction=0.5", "i:only",
		 "!gpu-fraction: \"0.5\" is for no container: the pod "
		 "has none",
		 NULL},
		{"gpu-fraction=0.5", "",
		 "!gpu-fraction: \"0.5\" is for no container: the pod has "
		 "none",
		 NULL},
	};

	CHECK(rows, NULL);
}

Test(contract_parse, memory)
{
	static const struct row rows[] = {
		{"gpu-memory=2000", "main", "main=share:time-slicing:1x2000Mi", NULL},
		{"gpu-memory=2Gi", "main", "main=share:time-slicing:1x2048Mi", NULL},
		{"gpu-memory=1000M", "main", "main=share:time-slicing:1x954Mi", NULL},
		{"gpu-memory=1.5Gi", "main", "main=share:time-slicing:1x1536Mi", NULL},
		{"gpu-memory=4e9", "main", "main=share:time-slicing:1x3815Mi", NULL},
		{"gpu-memory=1Mi", "main", "main=share:time-slicing:1x1Mi", NULL},
		{"gpu-memory=1048576", "main", "main=share:time-slicing:1x1048576Mi", NULL},
		{"gpu-memory=1048577k", "main", "main=share:time-slicing:1x1001Mi", NULL},
		{"gpu-memory=2147483647", "main", "main=share:time-slicing:1x2147483647Mi", NULL},
		{"gpu-memory=2147483648", "main",
		 "!gpu-memory: \"2147483648\" is not in 1..2147483647 MiB", NULL},
		{"gpu-memory=9223372036854775808", "main",
		 "!gpu-memory: \"9223372036854775808\" is not in 1..2147483647 MiB", NULL},
		{"gpu-memory=2048Ti", "main", "!gpu-memory: \"2048Ti\" is more than any GPU has",
		 NULL},
		{"gpu-memory=16Ei", "main", "!gpu-memory: \"16Ei\" is more than any GPU has", NULL},
		{"gpu-memory=0", "main", "!gpu-memory: \"0\" is not in 1..2147483647 MiB", NULL},
		{"gpu-memory=2000.5", "main",
		 "!gpu-memory: \"2000.5\" is 2001 bytes, less than 1Mi", NULL},
		{"gpu-memory=1000k", "main",
		 "!gpu-memory: \"1000k\" is 1000000 bytes, less than 1Mi", NULL},
		{"gpu-memory=100m", "main", "!gpu-memory: \"100m\" is 1 bytes, less than 1Mi",
		 NULL},
		{"gpu-memory=", "main", "!gpu-memory: quantity is empty", NULL},
		{"gpu-memory=-1Gi", "main", "!gpu-memory: quantity \"-1Gi\" is negative", NULL},
		{"gpu-memory=2GB", "main", "!gpu-memory: quantity \"2GB\" has an unknown suffix",
		 NULL},
		{"gpu-memory=lots", "main",
		 "!gpu-memory: quantity \"lots\" does not start with a number", NULL},
		{"gpu-memory=2000\ngpu-memory.limit=4Gi", "main",
		 "main=share:time-slicing:1x2000/4096Mi", NULL},
		{"gpu-memory=2000\ngpu-memory.limit=2000Mi", "main",
		 "main=share:time-slicing:1x2000/2000Mi", NULL},
		{"gpu-memory=2000\ngpu-memory.limit=1Gi", "main",
		 "!gpu-memory.limit: \"1Gi\" is below gpu-memory, 2000 MiB", NULL},
		{"gpu-memory=2000\ngpu-memory.limit=4000", "main",
		 "!gpu-memory.limit: \"4000\" is 4000 bytes, less than 1Mi", NULL},
		{"gpu-memory.limit=4Gi", "main", "!gpu-memory.limit: \"4Gi\" needs gpu-memory",
		 NULL},
		{"gpu-memory=2000\ngpu-fraction=0.5", "main",
		 "!gpu-fraction: \"0.5\" together with gpu-memory: \"2000\"; only one of them can be "
		 "given",
		 NULL},
		{"gpu-memory=2000\ngpu-fraction.limit=0.5", "main",
		 "!gpu-fraction.limit: \"0.5\" needs gpu-fraction", NULL},
	};

	CHECK(rows, NULL);
}

Test(contract_parse, devices_and_container)
{
	static const struct row rows[] = {
		{"gpu-fraction=0.5\ngpu-fraction-num-devices=2", "main",
		 "main=share:time-slicing:2x0.5", NULL},
		{"gpu-memory=2000\ngpu-fraction-num-devices=16", "main",
		 "main=share:time-slicing:16x2000Mi", NULL},
		{"gpu-fraction=0.5\ngpu-fraction-num-devices=0", "main",
		 "!gpu-fraction-num-devices: \"0\" is not in 1..16", NULL},
		{"gpu-fraction=0.5\ngpu-fraction-num-devices=17", "main",
		 "!gpu-fraction-num-devices: \"17\" is not in 1..16", NULL},
		{"gpu-fraction=0.5\ngpu-fraction-num-devices=-1", "main",
		 "!gpu-fraction-num-devices: \"-1\" is not in 1..16", NULL},
		{"gpu-fraction=0.5\ngpu-fraction-num-devices=two", "main",
		 "!gpu-fraction-num-devices: \"two\" is not an integer", NULL},
		{"gpu-fraction=0.5\ngpu-fraction-num-devices=1.0", "main",
		 "!gpu-fraction-num-devices: \"1.0\" is not an integer", NULL},
		{"gpu-fraction-num-devices=2", "main",
		 "!gpu-fraction-num-devices: \"2\" needs gpu-fraction or gpu-memory", NULL},
		{"gpu-fraction-num-devices=2", "main[nvidia.com/gpu=2]",
		 "!gpu-fraction-num-devices: \"2\" needs gpu-fraction or gpu-memory for container "
		 "\"main\"",
		 NULL},
		{"gpu-fraction-num-devices=2\n" C "main.gpu-memory.request=1Gi", "main",
		 "main=share:time-slicing:2x1024Mi", NULL},
		{"gpu-fraction-num-devices=2\n" C "side.gpu-memory.request=1Gi", "main side",
		 "!gpu-fraction-num-devices: \"2\" needs gpu-fraction or gpu-memory", NULL},
		{"gpu-fraction=0.5\ngpu-fraction-container-name=side", "main side",
		 "side=share:time-slicing:1x0.5", NULL},
		{"gpu-fraction=0.5\ngpu-fraction-container-name=warm", "i:warm main",
		 "warm=share:time-slicing:1x0.5", NULL},
		{"gpu-fraction=0.5\ngpu-fraction-container-name=none", "main",
		 "!gpu-fraction-container-name: \"none\" is not a container of the pod", NULL},
		{"gpu-fraction=0.5\ngpu-fraction-container-name=", "main",
		 "!gpu-fraction-container-name: \"\" is not a container of the pod", NULL},
		{"gpu-fraction-container-name=main", "main", "",
		 "gpu-fraction-container-name: \"main\" has no effect"},
		{"gpu-fraction=0.5", "this-name-of-a-container-is-too-long-for-its-own-keys",
		 "this-name-of-a-container-is-too-long-for-its-own-keys=share:time-slicing:1x0.5",
		 NULL},
	};

	CHECK(rows, NULL);
}

Test(contract_parse, container_memory)
{
	static const struct row rows[] = {
		{C "main.gpu-memory.request=2Gi", "main", "main=share:time-slicing:1x2048Mi", NULL},
		{C "main.gpu-memory.limit=2Gi", "main", "main=share:time-slicing:1x2048/2048Mi",
		 NULL},
		{C "main.gpu-memory.request=2Gi\n" C "main.gpu-memory.limit=4Gi", "main",
		 "main=share:time-slicing:1x2048/4096Mi", NULL},
		{C "main.gpu-memory.request=4Gi\n" C "main.gpu-memory.limit=2Gi", "main",
		 "!" C "main.gpu-memory.limit: \"2Gi\" is below the request of 4096 MiB", NULL},
		{C "a.gpu-memory.request=1Gi\n" C "c.gpu-memory.request=3Gi", "c b a",
		 "c=share:time-slicing:1x3072Mi a=share:time-slicing:1x1024Mi", NULL},
		{C "warm.gpu-memory.request=1Gi\n" C "side.gpu-memory.request=2Gi",
		 "i:warm s:side main",
		 "warm=share:time-slicing:1x1024Mi side=share:time-slicing:1x2048Mi", NULL},
		{C "main.gpu-memory.request=1048575", "main",
		 "!" C "main.gpu-memory.request: \"1048575\" is 1048575 bytes, less than 1Mi",
		 NULL},
		{C "main.gpu-memory.request=1048577", "main", "main=share:time-slicing:1x2Mi",
		 NULL},
		{C "main.gpu-memory.request=0", "main",
		 "!" C "main.gpu-memory.request: \"0\" is 0 bytes, less than 1Mi", NULL},
		{C "main.gpu-memory.request=", "main",
		 "!" C "main.gpu-memory.request: quantity is empty", NULL},
		{C "main.gpu-memory.limit=-4Gi", "main",
		 "!" C "main.gpu-memory.limit: quantity \"-4Gi\" is negative", NULL},
		{C "none.gpu-memory.request=1Gi", "main",
		 "!" C
		 "none.gpu-memory.request: \"1Gi\" is for container \"none\", which the pod does "
		 "not have",
		 NULL},
		{C ".gpu-memory.request=1Gi", "main",
		 "!" C ".gpu-memory.request: \"1Gi\" is for container \"\", which the pod does not "
		 "have",
		 NULL},
		{C "main.gpu-memory.request=1Gi\ngpu-fraction=0.5", "main",
		 "!" C
		 "main.gpu-memory.request: \"1Gi\" is a second share for this container beside "
		 "gpu-fraction",
		 NULL},
		{C "main.gpu-memory.limit=1Gi\ngpu-fraction=0.5", "main",
		 "!" C "main.gpu-memory.limit: \"1Gi\" cannot be combined with gpu-fraction; use "
		 "gpu-fraction.limit",
		 NULL},
		{C "main.gpu-memory.limit=1Gi\ngpu-memory=500", "main",
		 "!" C "main.gpu-memory.limit: \"1Gi\" cannot be combined with gpu-memory; use "
		 "gpu-memory.limit",
		 NULL},
		{C "side.gpu-memory.request=1Gi\ngpu-fraction=0.5", "main side",
		 "main=share:time-slicing:1x0.5 side=share:time-slicing:1x1024Mi", NULL},
		{C "main.gpu-memory=1Gi", "main", "",
		 "nvidia.com/container.main.gpu-memory: \"1Gi\" "
		 "has no effect: there is no such key"},
		{C "none.what.ever=1", "main", "", "there is no such key"},
		{C "main=1", "main", "", "there is no such key"},
		{"tessera.dev/gpu-prodct=T4", "main", "",
		 "tessera.dev/gpu-prodct: \"T4\" has no effect: there is no such key"},
		{C "this-name-is-one-too-long-for-that.gpu-memory.request=1Gi",
		 "this-name-is-one-too-long-for-that",
		 "this-name-is-one-too-long-for-that=share:time-slicing:1x1024Mi", NULL},
		{C "this-name-is-one-too-long-for-that0.gpu-memory.request=1Gi",
		 "this-name-is-one-too-long-for-that0",
		 "!" C
		 "this-name-is-one-too-long-for-that0.gpu-memory.request: \"1Gi\" has a key whose "
		 "name is longer than 63 characters (container names: at most 34 here); use "
		 "gpu-fraction or gpu-memory with gpu-fraction-container-name",
		 NULL},
	};

	CHECK(rows, NULL);
}

Test(contract_parse, compute)
{
	static const struct row rows[] = {
		{"gpu-fraction=0.5\n" C "main.gpu-compute.mode=sm-sharing", "main",
		 "main=share:sm-sharing:1x0.5", NULL},
		{"gpu-fraction=0.5\n" C "main.gpu-compute.mode=time-slicing", "main",
		 "main=share:time-slicing:1x0.5", NULL},
		{"gpu-fraction=0.5\n" C "main.gpu-compute.mode=exclusive", "main",
		 "!" C
		 "main.gpu-compute.mode: \"exclusive\" is neither time-slicing nor sm-sharing",
		 NULL},
		{"gpu-fraction=0.5\n" C "main.gpu-compute.mode=", "main",
		 "!" C "main.gpu-compute.mode: \"\" is neither time-slicing nor sm-sharing", NULL},
		{"gpu-fraction=0.5\n" C "none.gpu-compute.mode=sm-sharing", "main",
		 "!" C
		 "none.gpu-compute.mode: \"sm-sharing\" is for container \"none\", which the pod "
		 "does not have",
		 NULL},
		{C "main.gpu-compute.mode=sm-sharing", "main", "",
		 C
		 "main.gpu-compute.mode: \"sm-sharing\" has no effect: the container has no share"},
		{C "main.gpu-compute.mode=sm-sharing", "main[nvidia.com/gpu=1]", "main=whole:1",
		 "has no effect"},
		{C "main.gpu-compute.mode=fast", "main",
		 "!" C "main.gpu-compute.mode: \"fast\" is neither time-slicing nor sm-sharing",
		 NULL},
		{"gpu-fraction=0.5\n" C "main.gpu-compute.mode=sm-sharing\n" C
		 "main.gpu-compute.request=0.25",
		 "main", "main=share:sm-sharing:1x0.5:c0.25", NULL},
		{"gpu-fraction=0.5\n" C "main.gpu-compute.mode=sm-sharing\n" C
		 "main.gpu-compute.request=1",
		 "main", "main=share:sm-sharing:1x0.5:c1", NULL},
		{"gpu-fraction=0.5\n" C "main.gpu-compute.request=0.25", "main",
		 "main=share:time-slicing:1x0.5:c0.25", "is booked but not enforced"},
		{"gpu-fraction=0.5\n" C "main.gpu-compute.request=0", "main",
		 "!" C "main.gpu-compute.request: \"0\" is not in (0, 1]", NULL},
		{"gpu-fraction=0.5\n" C "main.gpu-compute.request=1.1", "main",
		 "!" C "main.gpu-compute.request: \"1.1\" is not in (0, 1]", NULL},
		{"gpu-fraction=0.5\n" C "main.gpu-compute.request=50%", "main",
		 "!" C "main.gpu-compute.request: \"50%\" is not a plain decimal number", NULL},
		{C "main.gpu-compute.request=0.5", "main",
		 "!" C
		 "main.gpu-compute.request: \"0.5\" is for container \"main\", which has no share "
		 "of a GPU",
		 NULL},
		{"gpu-fraction=0.5\ntessera.dev/compute-mode-policy=preferred", "main",
		 "main=share:time-slicing?:1x0.5", NULL},
		{"gpu-fraction=0.5\ntessera.dev/compute-mode-policy=required", "main",
		 "main=share:time-slicing:1x0.5", NULL},
		{"gpu-fraction=0.5\ntessera.dev/compute-mode-policy=any", "main",
		 "!tessera.dev/compute-mode-policy: \"any\" is neither required nor preferred",
		 NULL},
		{"tessera.dev/compute-mode-policy=preferred", "main", "",
		 "tessera.dev/compute-mode-policy: \"preferred\" has no effect"},
	};

	CHECK(rows, NULL);
}

Test(contract_parse, product_and_workload)
{
	static const struct row rows[] = {
		{"gpu-fraction=0.5\ntessera.dev/gpu-product=NVIDIA-L4|Tesla-T4", "main",
		 "main=share:time-slicing:1x0.5 product=NVIDIA-L4|Tesla-T4", NULL},
		{"tessera.dev/gpu-product=", "main",
		 "!tessera.dev/gpu-product: \"\" names no product", NULL},
		{"tessera.dev/gpu-product=| |", "main",
		 "!tessera.dev/gpu-product: \"| |\" names no product", NULL},
		{"gpu-fraction=0.5\ntessera.dev/workload-profile=memory-bound", "main",
		 "main=share:time-slicing:1x0.5 workload=memory-bound", NULL},
		{"gpu-fraction=0.5\ntessera.dev/workload-profile=compute-bound", "main",
		 "main=share:time-slicing:1x0.5 workload=compute-bound", NULL},
		{"tessera.dev/workload-profile=cpu", "main",
		 "!tessera.dev/workload-profile: \"cpu\" is neither memory-bound nor compute-bound",
		 NULL},
	};
	char longest[400], too_long[400];
	struct row limits[] = {{longest, "main", NULL, NULL}, {too_long, "main", NULL, NULL}};
	char want[400], refused[400];

	CHECK(rows, NULL);
	snprintf(longest, sizeof(longest), "tessera.dev/gpu-product=%0255d", 7);
	snprintf(want, sizeof(want), " product=%0255d", 7);
	snprintf(too_long, sizeof(too_long), "tessera.dev/gpu-product=%0256d", 7);
	snprintf(refused, sizeof(refused),
		 "!tessera.dev/gpu-product: \"%096d...\" is longer than 255 bytes", 0);
	limits[0].want = want;
	limits[1].want = refused;
	CHECK(limits, NULL);
}

Test(contract_parse, whole)
{
	static const struct row rows[] = {
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

	CHECK(rows, NULL);
}

Test(contract_parse, mig)
{
	static const struct row rows[] = {
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

	CHECK(rows, NULL);
}

Test(contract_parse, hami)
{
	static const struct st_contract_options on = {.hami = true};
	static const struct row rows[] = {
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
	static const struct row off[] = {
		{"", "main[nvidia.com/gpu=1,nvidia.com/gpumem=3000]", "main=whole:1",
		 "nvidia.com/gpumem: \"3000\" has no effect: HAMi's resource names are switched off"},
	};

	CHECK(rows, &on);
	CHECK(off, NULL);
}

/* Keys that a bind wrote, on a pod that is bound or was copied from one. */
Test(contract_parse, leftover)
{
#define LEFT "tessera.dev/allocation=v1;n;0123456789abcdef;main=drlm\n"
#define LEFT_KEYS                                                                                  \
	LEFT C "main.gpus.devices=GPU-1\n" C "main.gpu-memory.request=100Mi\n" C                   \
	       "main.gpu-memory.limit=200Mi\n"
	static const struct row rows[] = {
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

	CHECK(rows, NULL);
}

Test(contract_parse, prefix)
{
	static const struct st_contract_options own = {.prefix = "example.com/c."};
	static const struct row rows[] = {
		{"example.com/c.main.gpu-memory.request=1Gi", "main",
		 "main=share:time-slicing:1x1024Mi", NULL},
		{C "main.gpu-memory.request=1Gi", "main", "", NULL},
		{T "main.mig-profile=1g.10gb", "main", "main=mig:1x1g.10gb", NULL},
	};

	CHECK(rows, &own);
	cr_assert(st_contract_is_allocation_key("example.com/c.main.gpus.devices", &own));
	cr_assert_not(st_contract_is_allocation_key(C "main.gpus.devices", &own));
}

Test(contract_parse, allocation_keys)
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

Test(contract_parse, plugin_gpus)
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

Test(contract_parse, host_resources)
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
Test(contract_parse, message_is_printable)
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

Test(contract_parse, many_warnings)
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
