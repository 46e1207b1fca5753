/* Why no cluster does: pods that fit on no node type, however many nodes there are. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "replay/plan_internal.h"
#include "replay/stage.h"

#define KINDS_NAMED 3

struct misfit {
	size_t shape;
	enum bp_verdict why; /* of the first node type */
};

/* BP_OK where a node takes it. */
static int ask(struct rp_stage *s, const struct st_request *req, enum bp_verdict *ret,
	       struct err *err)
{
	struct po_shape *shape = po_placer_ask(s->placer, req, 0);

	if (shape == NULL)
		return err_set(err, ERR_NOMEM, "out of memory");
	*ret = po_shape_best(shape) != ST_NONE ? BP_OK : po_shape_node(shape, 0).verdict;
	return 0;
}

/* Keeps the list sorted, the most pods first. */
static void insert(const struct rp_trace *t, struct misfit list[KINDS_NAMED], size_t *count,
		   struct misfit m)
{
	size_t i = *count;

	if (i == KINDS_NAMED) {
		if (t->shapes[list[i - 1].shape].count >= t->shapes[m.shape].count)
			return;
		i--;
	} else {
		++*count;
	}
	for (; i > 0 && t->shapes[list[i - 1].shape].count < t->shapes[m.shape].count; i--)
		list[i] = list[i - 1];
	list[i] = m;
}

static const char *name_of(const struct rp_trace *t, size_t shape)
{
	for (size_t i = 0; i < t->pod_count; i++)
		if (t->pods[i] == shape)
			return strpool_str(t->pod_names, (uint32_t)i);
	return "";
}

static int find(const struct rp_planner *p, struct rp_stage *s, char *text, size_t cap,
		struct err *err)
{
	const struct rp_trace *t = p->t;
	struct misfit list[KINDS_NAMED];
	size_t count = 0;

	for (size_t i = 0; i < t->shape_count; i++) {
		struct misfit m = {.shape = i, .why = BP_OK};
		int rc = t->shapes[i].count > 0 ? ask(s, &t->shapes[i].req, &m.why, err) : 0;

		if (rc < 0)
			return rc;
		if (m.why != BP_OK)
			insert(t, list, &count, m);
	}
	for (size_t i = 0; i < count; i++) {
		size_t used = strlen(text);

		snprintf(text + used, cap - used, "%s%" PRId64 " like %.60s (%s)",
			 i == 0 ? "" : ", ", t->shapes[list[i].shape].count,
			 name_of(t, list[i].shape), bp_verdict_text(list[i].why));
	}
	return 0;
}

int rp_planner_misfits(const struct rp_planner *p, char *text, size_t cap, struct err *err)
{
	const struct rp_run_options opt = {
		.policy = p->opt->policy, .seed = p->opt->seeds[0], .bare = true};
	struct rp_plan_counts one = {0};
	struct rp_trace view;
	struct rp_stage s;
	int rc;

	text[0] = '\0';
	for (size_t i = 0; i < p->type_count; i++)
		one.n[i] = p->types[i].max > 0;
	rc = rp_trace_view(p->t, p->types, one.n, p->type_count, &view, err);
	if (rc < 0)
		return rc;
	if (view.gpu_milli > 0) {
		rc = rp_stage_open(&s, &view, NULL, &opt, err);
		if (rc == 0)
			rc = find(p, &s, text, cap, err);
		rp_stage_close(&s);
	}
	rp_trace_view_fini(&view);
	return rc;
}
