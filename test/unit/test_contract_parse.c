#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "test/lib/contract_rows.h"

#define C "nvidia.com/container."
#define T "tessera.dev/container."

Test(contract_parse, fraction)
{
	static const struct contract_row rows[] = {
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

	CHECK_ROWS(rows, NULL);
}

Test(contract_parse, memory)
{
	static const struct contract_row rows[] = {
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
		{"gpu-memory=100m", "main", "!gpu-memory: \"100m\" is 1 byte, less than 1Mi", NULL},
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
		 "!gpu-memory.limit: \"4000\" is 4000 bytes, less than 1Mi; "
		 "write \"Mi\" behind it if MiB are meant",
		 NULL},
		{"gpu-memory.limit=4Gi", "main", "!gpu-memory.limit: \"4Gi\" needs gpu-memory",
		 NULL},
		{"gpu-memory=2000\ngpu-fraction=0.5", "main",
		 "!gpu-fraction: \"0.5\" together with gpu-memory: \"2000\"; only one of them can be "
		 "given",
		 NULL},
		{"gpu-memory=2000\ngpu-fraction.limit=0.5", "main",
		 "!gpu-fraction.limit: \"0.5\" needs gpu-fraction", NULL},
	};

	CHECK_ROWS(rows, NULL);
}

Test(contract_parse, devices_and_container)
{
	static const struct contract_row rows[] = {
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

	CHECK_ROWS(rows, NULL);
}

Test(contract_parse, container_memory)
{
	static const struct contract_row rows[] = {
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
		 "!" C "main.gpu-memory.request: \"1048575\" is 1048575 bytes, less than 1Mi; "
		 "write \"Mi\" behind it if MiB are meant",
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

	CHECK_ROWS(rows, NULL);
}

Test(contract_parse, compute)
{
	static const struct contract_row rows[] = {
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
		 "main=share:time-slicing:1x0.5:c0.25", "is ignored in time-slicing"},
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

	CHECK_ROWS(rows, NULL);
}

Test(contract_parse, product_and_workload)
{
	static const struct contract_row rows[] = {
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
	struct contract_row limits[] = {{longest, "main", NULL, NULL},
					{too_long, "main", NULL, NULL}};
	char want[400], refused[400];

	CHECK_ROWS(rows, NULL);
	snprintf(longest, sizeof(longest), "tessera.dev/gpu-product=%0255d", 7);
	snprintf(want, sizeof(want), " product=%0255d", 7);
	snprintf(too_long, sizeof(too_long), "tessera.dev/gpu-product=%0256d", 7);
	snprintf(refused, sizeof(refused),
		 "!tessera.dev/gpu-product: \"%096d...\" is longer than 255 bytes", 0);
	limits[0].want = want;
	limits[1].want = refused;
	CHECK_ROWS(limits, NULL);
}
