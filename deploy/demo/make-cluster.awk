# Writes the demo's cluster, and the pods that the demo creates, as `kubectl get -o json` prints them.
#   awk -v what=cluster -f make-cluster.awk > cluster.json
#   awk -v what=pods    -f make-cluster.awk > pods.json
# The sizes are those that drivers report for these products. Nothing here is random.

function node(name, product, mib, gpus, cores, gib, mig,    i, inv, dev) {
	for (i = 0; i < gpus; i++) {
		dev = sprintf("{\\\"uuid\\\":\\\"GPU-%08x-0000-4000-8000-%012x\\\",\\\"index\\\":%d," \
			"\\\"product\\\":\\\"%s\\\",\\\"mem_mib\\\":%d,\\\"healthy\\\":%s",
			++serial * 2654435761 % 4294967296, serial, i, product, mib,
			name == "t4-06" && i == 2 ? "false" : "true")
		if (mig)
			dev = dev ",\\\"mig\\\":{\\\"capable\\\":true,\\\"enabled\\\":true}"
		inv = inv (i ? "," : "") dev "}"
	}
	printf "%s{\"apiVersion\":\"v1\",\"kind\":\"Node\",\"metadata\":{\"name\":\"%s\"," \
		"\"labels\":{\"nvidia.com/gpu.product\":\"%s\"},\"annotations\":{" \
		"\"tessera.dev/inventory\":\"{\\\"version\\\":1,\\\"gpus\\\":[%s]}\"}},\"status\":{" \
		"\"allocatable\":{\"cpu\":\"%d\",\"memory\":\"%dGi\",\"pods\":\"110\"}," \
		"\"conditions\":[{\"type\":\"Ready\",\"status\":\"True\"}]}}",
		sep, name, product, inv, cores, gib
	sep = ",\n"
}

function nodes(prefix, count, product, mib, gpus, cores, gib, mig,    i) {
	for (i = 1; i <= count; i++)
		node(sprintf("%s-%02d", prefix, i), product, mib, gpus, cores, gib, mig)
}

function container(name, cpu, gib, limits) {
	return sprintf("{\"name\":\"%s\",\"image\":\"registry.example/app\",\"resources\":{\"limits\":{" \
		"\"cpu\":\"%s\",\"memory\":\"%dGi\"%s}}}", name, cpu, gib, limits)
}

# annotations: "key=value|key=value"
function pod(name, annotations, containers,    n, i, kv, text) {
	n = split(annotations, kv, "|")
	for (i = 1; i <= n; i++) {
		sub(/=/, "\":\"", kv[i])
		text = text (i > 1 ? "," : "") "\"" kv[i] "\""
	}
	printf "%s{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":\"%s\",\"namespace\":\"demo\"," \
		"\"uid\":\"%08x-0000-4000-9000-%012x\",\"annotations\":{%s}},\"spec\":{\"schedulerName\":" \
		"\"tessera\",\"containers\":[%s]},\"status\":{\"phase\":\"Pending\"}}",
		sep, name, ++serial * 2246822519 % 4294967296, serial, text, containers
	sep = ",\n"
}

function whole(n) { return sprintf(",\"nvidia.com/gpu\":\"%d\"", n) }
function mig(p) { return sprintf(",\"nvidia.com/mig-%s\":\"1\"", p) }

function pods(round) {
	pod("notebook-" round, "gpu-fraction=0.25", container("main", 4, 16, ""))
	pod("inference-half-" round, "gpu-fraction=0.5", container("main", 6, 24, ""))
	pod("embed-20g-" round, "gpu-memory=20Gi", container("main", 4, 16, ""))
	pod("batch-sm-" round, "nvidia.com/container.main.gpu-memory.request=24Gi|" \
		"nvidia.com/container.main.gpu-compute.mode=sm-sharing|" \
		"nvidia.com/container.main.gpu-compute.request=0.3", container("main", 8, 32, ""))
	pod("train-1-" round, "", container("main", 12, 64, whole(1)))
	if (round % 2 == 0)
		pod("tensor-parallel-" round, "gpu-memory=30Gi|gpu-fraction-num-devices=2",
			container("main", 8, 64, ""))
	if (round % 3 == 0) {
		pod("burst-" round, "gpu-fraction=0.3|gpu-fraction.limit=0.6", container("main", 4, 16, ""))
		pod("two-models-" round, "nvidia.com/container.llm.gpu-memory.request=30Gi|" \
			"nvidia.com/container.rerank.gpu-memory.request=6Gi",
			container("llm", 8, 32, "") "," container("rerank", 2, 8, ""))
	}
	if (round % 4 == 0) {
		pod("mig-small-" round, "", container("main", 2, 8, mig("1g.5gb")))
		pod("mig-large-" round, "", container("main", 4, 16, mig("3g.20gb")))
		pod("t4-only-" round, "gpu-fraction=0.5|tessera.dev/gpu-product=Tesla-T4",
			container("main", 2, 8, ""))
	}
	if (round % 5 == 0) {
		pod("mig-medium-" round, "", container("main", 2, 8, mig("2g.10gb")))
		pod("etl-cpu-only-" round, "", container("main", 16, 64, ""))
	}
	if (round % 12 == 0)
		pod("train-8-" round, "", container("main", 96, 512, whole(8)))
}

BEGIN {
	printf "{\"apiVersion\":\"v1\",\"kind\":\"List\",\"items\":[\n"
	if (what == "cluster") {
		nodes("a100", 6, "NVIDIA-A100-SXM4-80GB", 81920, 8, 128, 1024, 0)
		nodes("h100", 4, "NVIDIA-H100-80GB-HBM3", 81559, 8, 192, 2048, 0)
		nodes("l40s", 6, "NVIDIA-L40S", 46068, 4, 96, 512, 0)
		nodes("t4", 6, "Tesla-T4", 15360, 4, 48, 192, 0)
		nodes("a100-mig", 1, "NVIDIA-A100-SXM4-40GB", 40960, 8, 96, 512, 1)
		nodes("cpu", 2, "", 0, 0, 64, 256, 0)
	} else {
		for (i = 1; i <= 30; i++)
			pods(i)
	}
	printf "\n]}\n"
}
