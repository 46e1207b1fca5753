#include "replay/stranded.h"

#include <stdio.h>
#include <string.h>

#include "replay/curve.h"

static enum rp_why why_of(enum bp_verdict v, const struct st_node *n, const struct st_request *req)
{
	switch (v) {
	case BP_OK:
		return RP_WHY_USABLE;
	case BP_CPU:
	case BP_PODS:
		return RP_WHY_CPU;
	case BP_HOST_TOO_SMALL:
		return req->cpu_milli > n->cpu_milli ? RP_WHY_CPU : RP_WHY_MEMORY;
	case BP_HOST_MEMORY:
		return RP_WHY_MEMORY;
	case BP_TOO_LARGE:
	case BP_TOO_MANY:
	case BP_MEMORY:
	case BP_NOT_IDLE:
	case BP_TOO_FEW:
	case BP_COMBINATION:
	case BP_LIMIT:
		return RP_WHY_FRACTION;
	case BP_MODE:
	case BP_CLIENTS:
	case BP_COMPUTE:
	case BP_ONLY_MIG:
		return RP_WHY_MODE;
	case BP_NO_MIG:
	case BP_MIG_ROOM:
		return RP_WHY_MIG;
	case BP_PRODUCT:
	case BP_NO_GPU:
		return RP_WHY_PRODUCT;
	case BP_NO_NODE:
	case BP_UNREADY:
	case BP_FENCED:
	case BP_TAKEN:
	case BP_VERDICT_COUNT:
	default:
		return RP_WHY_OTHER;
	}
}

static struct rp_model_use *model_of(struct rp_stranded *s, const char *name)
{
	struct rp_model_use *m;

	for (size_t i = 0; i < s->model_count; i++)
		if (strncmp(s->models[i].name, name, sizeof(s->models[i].name) - 1) == 0)
			return &s->models[i];
	if (s->model_count == RP_MODELS_MAX) {
		m = &s->models[RP_MODELS_MAX - 1];
		snprintf(m->name, sizeof(m->name), "others");
		return m;
	}
	m = &s->models[s->model_count++];
	snprintf(m->name, sizeof(m->name), "%s", name);
	return m;
}

static void count_models(const struct st_cluster *c, struct rp_stranded *s)
{
	for (uint32_t id = 0; id < st_cluster_node_count(c); id++) {
		const struct st_node *n = st_cluster_node(c, id);
		const char *name = n->product != STRPOOL_NONE
					   ? strpool_str(st_cluster_products(c), n->product)
					   : "";
		struct rp_model_use *m;

		if (!n->present || n->gpu_count == 0)
			continue;
		m = model_of(s, name);
		m->total_milli += (int64_t)n->gpu_count * RP_GPU_UNITS;
		m->used_milli += rp_node_used_milli(n);
		s->idle_milli += (int64_t)n->gpu_count * RP_GPU_UNITS - rp_node_used_milli(n);
	}
}

int rp_stranded_find(const struct rp_trace *t, const struct st_cluster *c, struct po_placer *p,
		     struct rp_stranded *ret, struct err *err)
{
	struct rp_stranded s = {0};
	__int128 sums[RP_WHYS] = {0};
	int64_t weight = 0, rest;

	count_models(c, &s);
	for (size_t i = 0; i < t->shape_count; i++) {
		const struct rp_shape *shape = &t->shapes[i];
		struct po_shape *asked;

		if (shape->count == 0 || shape->kind == RP_CPU_ONLY)
			continue;
		asked = po_placer_ask(p, &shape->req, 0);
		if (asked == NULL)
			return err_set(err, ERR_NOMEM, "out of memory");
		weight += shape->count;
		for (uint32_t id = 0; id < st_cluster_node_count(c); id++) {
			const struct st_node *n = st_cluster_node(c, id);
			int64_t idle = (int64_t)n->gpu_count * RP_GPU_UNITS - rp_node_used_milli(n);

			if (n->present && idle > 0)
				sums[why_of(po_shape_node(asked, id).verdict, n, &shape->req)] +=
					(__int128)idle * shape->count;
		}
	}
	/* Rounded so that the parts add up. */
	rest = s.idle_milli;
	for (int w = RP_WHYS - 1; w > 0 && weight > 0; w--) {
		s.why_milli[w] = rp_round_div(sums[w], weight);
		rest -= s.why_milli[w];
	}
	s.why_milli[RP_WHY_USABLE] = rest > 0 ? rest : 0;
	*ret = s;
	return 0;
}

const char *rp_why_key(enum rp_why w)
{
	static const char *const keys[RP_WHYS] = {"usable", "cpu", "memory",  "fraction",
						  "mode",   "mig", "product", "other"};

	return keys[w];
}

const char *rp_why_text(enum rp_why w)
{
	static const char *const texts[RP_WHYS] = {
		"of use",     "no CPU left",  "no host memory left", "parts too small",
		"other mode", "no MIG start", "other product",       "node in trouble"};

	return texts[w];
}
