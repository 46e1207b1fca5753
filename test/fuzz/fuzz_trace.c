/* Node tables, pod tables and order files. The first byte chooses; an order file is read against a
 * small fixed trace. What is accepted must be consistent. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "replay/openb.h"
#include "replay/order.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char nodes[] = "sn,cpu_milli,memory_mib,gpu,model\nn0,1000,10,8,G2\nn1,1000,10,2,T4\n";
static const char pods[] =
	"name,cpu_milli,memory_mib,num_gpu,gpu_milli\np0,1,1,1,500\np1,1,1,2,1000\n"
	"p2,1,1,0,0\n";

static void check(int ok)
{
	if (!ok)
		abort();
}

static void check_trace(const struct rp_trace *t)
{
	int64_t milli = 0, count = 0;

	check(strpool_count(t->node_names) == t->node_count);
	check(strpool_count(t->pod_names) == t->pod_count);
	for (size_t i = 0; i < t->node_count; i++)
		milli += (int64_t)t->nodes[i].gpu_count * RP_GPU_UNITS;
	check(milli == t->gpu_milli);
	for (size_t i = 0; i < t->shape_count; i++) {
		const struct rp_shape *s = &t->shapes[i];

		count += s->count;
		check(s->milli >= 0 && s->milli <= INT64_C(1) * ST_GPUS_MAX * RP_GPU_UNITS);
		check(s->device_milli <= RP_GPU_UNITS);
		check((s->kind == RP_CPU_ONLY) == (s->milli == 0));
		check(memchr(s->req.product, '\0', ST_PRODUCT_CAP) != NULL);
	}
	check(count == (int64_t)t->pod_count);
	for (size_t i = 0; i < t->pod_count; i++)
		check(t->pods[i] < t->shape_count);
}

static void check_order(const struct rp_trace *t, const struct rp_order *o)
{
	unsigned ranks = 0;

	for (size_t i = 0; i < o->pod_count; i++)
		check(o->pods[i] < t->pod_count);
	for (size_t i = 0; i < t->node_count; i++)
		ranks |= 1U << o->ranks[i];
	check(ranks == (1U << t->node_count) - 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct err err = ERR_INIT;
	struct rp_order o = {0};
	struct rp_trace t;
	char *text;
	int rc;

	if (size == 0)
		return 0;
	text = malloc(size); /* exact size: a read past the end is seen */
	rp_trace_init(&t);
	if (text == NULL || rp_trace_open(&t, &err) < 0)
		abort();
	memcpy(text, data + 1, size - 1);
	switch (data[0] % 3) {
	case 0:
		rc = rp_openb_nodes(&t, "f", text, size - 1, &err);
		break;
	case 1:
		rc = rp_openb_pods(&t, "f", text, size - 1, &err);
		break;
	default:
		check(rp_openb_nodes(&t, "n", nodes, sizeof(nodes) - 1, &err) == 0);
		check(rp_openb_pods(&t, "p", pods, sizeof(pods) - 1, &err) == 0);
		rc = rp_order_read(&t, "f", text, size - 1, &o, &err);
		if (rc == 0)
			check_order(&t, &o);
		break;
	}
	check_trace(&t);
	check((rc < 0) == (err.msg[0] != '\0'));
	rp_order_fini(&o);
	rp_trace_fini(&t);
	free(text);
	return 0;
}
