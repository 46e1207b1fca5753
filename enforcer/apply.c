#include "enforcer/apply.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "enforcer/apply_internal.h"

#define PIPE_ROOT "/run/nvidia-mps"
#define PIPE_TARGET_V3 "/run/nvidia-mps"     /* of the default socket: time-slicing */
#define PIPE_TARGET_SHARED "/tmp/nvidia-mps" /* of a server or namespace, and of legacy MPS */
#define SHARED_NAMESPACE "/shared/default"

const char *apply_pipe_root(const struct en_apply_options *opt)
{
	return opt->pipe_root != NULL ? opt->pipe_root : PIPE_ROOT;
}

/* What everything below works on. */
struct planner {
	const struct en_node *node;
	const struct st_pod_spec *pod;
	const char *container;
	const struct en_apply_options *opt;
	struct st_decision d;
	int own;
	struct en_plan plan;
};

static const char *text_or(const char *s, const char *other)
{
	return s != NULL && s[0] != '\0' ? s : other;
}

/* Puts the container's and the pod's name before it; returns false, for the checks to end with. */
static bool refuse(struct planner *x, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static bool refuse(struct planner *x, const char *fmt, ...)
{
	struct err e = ERR_INIT;
	char reason[ERR_MSG_CAP];
	va_list ap;

	va_start(ap, fmt);
	/* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): started in the line above */
	vsnprintf(reason, sizeof(reason), fmt, ap);
	va_end(ap);
	err_set(&e, ERR_CONFLICT, "container \"%.63s\" of pod %.63s/%.253s: %s", x->container,
		text_or(x->pod->ns, "-"), text_or(x->pod->name, "-"), reason);
	memcpy(x->plan.why, e.msg, sizeof(x->plan.why));
	x->plan.verdict = x->opt->fail_open ? EN_LEAVE : EN_REFUSE;
	return false;
}

/* ---- checks against the node ---- */

/* What this pod's containers take of a GPU together. */
struct sum {
	int64_t request_mib, limit_mib, compute_nano;
	unsigned clients;
	uint32_t mig_units;
	bool mig_overlap;
	enum st_mode mode; /* of the first grant on it */
	bool modes_differ;
	unsigned exclusive;
};

static void sum_add(struct sum *s, const struct en_node_gpu *gpu, const struct st_grant *g, int i)
{
	if (s->clients == 0)
		s->mode = g->mode;
	s->modes_differ |= s->mode != g->mode;
	s->clients++;
	if (g->kind == ST_KIND_MIG) {
		uint32_t units = apply_mig_units(gpu, g->profile, g->start[i]);

		s->mig_overlap |= units == 0 || (s->mig_units & units) != 0;
		s->mig_units |= units;
	} else if (g->kind == ST_KIND_SHARE) {
		s->request_mib += g->request_mib;
		s->limit_mib += g->limit_mib;
		s->compute_nano += g->compute_nano;
	} else {
		s->exclusive++;
	}
}

static struct sum sum_of_pod(const struct planner *x, uint8_t gpu)
{
	struct sum s = {0};

	for (int i = 0; i < x->d.grant_count; i++) {
		for (int k = 0; k < x->d.grants[i].count; k++) {
			if (x->d.grants[i].gpu[k] == gpu)
				sum_add(&s, &x->node->gpus[gpu], &x->d.grants[i], k);
		}
	}
	return s;
}

static bool check_mode(struct planner *x, const struct en_node_gpu *gpu, const struct sum *s)
{
	const struct st_grant *g = &x->plan.grant;

	if (g->kind != ST_KIND_MIG && gpu->mig_enabled)
		return refuse(x, "%s is for %s, but the GPU is in MIG mode", gpu->uuid,
			      st_mode_name(g->mode));
	if (s->modes_differ)
		return refuse(x, "the allocation puts %s into two modes", gpu->uuid);
	if (gpu->mode != ST_MODE_FREE && gpu->mode != g->mode)
		return refuse(x, "%s is for %s, but other pods use the GPU in %s", gpu->uuid,
			      st_mode_name(g->mode), st_mode_name(gpu->mode));
	if (g->kind == ST_KIND_WHOLE && (gpu->mode != ST_MODE_FREE || s->exclusive > 1))
		return refuse(x, "%s is given as a whole, but another container has it", gpu->uuid);
	return true;
}

static bool check_memory(struct planner *x, const struct en_node_gpu *gpu, const struct sum *s)
{
	const struct st_grant *g = &x->plan.grant;
	int64_t room = (int64_t)gpu->mem_mib - x->opt->reserve_mib;
	int64_t limits = (int64_t)gpu->mem_mib * x->opt->overcommit_permille / 1000;
	int64_t together = gpu->limit_mib + s->limit_mib;

	if (g->request_mib > g->limit_mib)
		return refuse(x, "the request of %d MiB is above the limit of %d MiB",
			      g->request_mib, g->limit_mib);
	if (g->limit_mib > gpu->mem_mib)
		return refuse(x, "the limit of %d MiB is above the %d MiB of %s", g->limit_mib,
			      gpu->mem_mib, gpu->uuid);
	if (gpu->request_mib + s->request_mib > room)
		return refuse(x,
			      "the pod asks for %lld MiB of %s, where other pods hold %lld of "
			      "%lld MiB",
			      (long long)s->request_mib, gpu->uuid, (long long)gpu->request_mib,
			      (long long)room);
	if (x->opt->overcommit_permille > 0 && together > limits)
		return refuse(x,
			      "the limits on %s would be %lld MiB together, at most %lld MiB are "
			      "allowed",
			      gpu->uuid, (long long)together, (long long)limits);
	return true;
}

static bool check_share(struct planner *x, const struct en_node_gpu *gpu, const struct sum *s)
{
	if (!check_memory(x, gpu, s))
		return false;
	if (x->plan.grant.mode == ST_MODE_SM_SHARING &&
	    gpu->compute_nano + s->compute_nano > ST_NANO)
		return refuse(x, "the compute shares on %s would be %lld of 1,000 together",
			      gpu->uuid,
			      (long long)((gpu->compute_nano + s->compute_nano) / 1000000));
	if (x->opt->clients_max > 0 && (int64_t)gpu->clients + s->clients > x->opt->clients_max)
		return refuse(x, "%s would have %lld containers, at most %d are possible",
			      gpu->uuid, (long long)gpu->clients + s->clients, x->opt->clients_max);
	return true;
}

static bool check_mig(struct planner *x, const struct en_node_gpu *gpu, const struct sum *s)
{
	if (!gpu->mig_enabled && (!gpu->mig_switchable || gpu->mode != ST_MODE_FREE))
		return refuse(x, "%s is for MIG, but the GPU is not in MIG mode", gpu->uuid);
	if (s->mig_overlap || (gpu->mig_units & s->mig_units) != 0)
		return refuse(x, "the MIG instances on %s overlap", gpu->uuid);
	return true;
}

static bool check_gpus(struct planner *x)
{
	const struct st_grant *g = &x->plan.grant;

	for (int i = 0; i < g->count; i++) {
		const struct en_node_gpu *gpu = &x->node->gpus[g->gpu[i]];
		struct sum s = sum_of_pod(x, g->gpu[i]);

		if (!check_mode(x, gpu, &s))
			return false;
		if (g->kind == ST_KIND_SHARE && !check_share(x, gpu, &s))
			return false;
		if (g->kind == ST_KIND_MIG && !check_mig(x, gpu, &s))
			return false;
	}
	return true;
}

/* ---- how a share is kept ---- */

/* MPS reads 0 as "no limit". */
static int percent_of(int32_t nano)
{
	int percent = nano / (ST_NANO / 100);

	return nano > 0 && percent == 0 ? 1 : percent;
}

/* Before anything is checked: a container that runs although it should not is looked after by these. */
static void share_fields(struct planner *x)
{
	const struct en_node *n = x->node;
	struct en_plan *p = &x->plan;
	bool sharing = p->grant.mode == ST_MODE_SM_SHARING;

	p->uses_mps = true;
	p->by_cgroup = n->memory_limits;
	p->by_client = !n->memory_limits;
	p->percent = sharing ? percent_of(p->grant.compute_nano) : 0;
	p->own_namespace = n->mps_v3 && p->percent > 0;
	p->pipe_target = sharing ? PIPE_TARGET_SHARED : PIPE_TARGET_V3;
}

static bool check_mps(struct planner *x)
{
	const struct en_node *n = x->node;
	struct en_plan *p = &x->plan;
	bool sharing = p->grant.mode == ST_MODE_SM_SHARING;
	int len;

	if (!sharing && !(n->mps_v3 && n->memory_limits))
		return refuse(x, "time-slicing needs MPS protocol 3 and memory limits by cgroup, "
				 "which driver and kernel of this node do not have");
	if (!n->mps_ready)
		return refuse(x, "MPS does not run on this node: %s",
			      text_or(n->mps_why, "the control daemon does not answer"));
	len = snprintf(p->pipe_source, sizeof(p->pipe_source), "%s%s", apply_pipe_root(x->opt),
		       sharing && n->mps_v3 ? SHARED_NAMESPACE : "");
	if (len < 0 || (size_t)len >= sizeof(p->pipe_source))
		return refuse(x, "the MPS pipe directory has a name of %d characters", len);
	return true;
}

/* ---- the plan ---- */

static void plan_pod(struct planner *x, enum apply_found found, const struct err *why)
{
	struct en_plan *p = &x->plan;
	const char *asks;

	switch (found) {
	case APPLY_NONE:
		asks = apply_asks(x->pod, x->opt);
		p->verdict = EN_LEAVE;
		if (asks != NULL && !x->opt->ignore_unplaced)
			refuse(x,
			       "has %.150s but no tessera.dev/allocation: it was not placed by "
			       "Tessera",
			       asks);
		return;
	case APPLY_WRONG:
		refuse(x, "%s", why->msg);
		return;
	case APPLY_READ:
		break;
	}
	p->verdict = x->own < 0 ? EN_HIDE : EN_GIVE;
	if (x->own < 0)
		return;
	p->grant = x->d.grants[x->own];
	if (p->grant.kind == ST_KIND_SHARE)
		share_fields(x);
	if (check_gpus(x) && p->grant.kind == ST_KIND_SHARE)
		check_mps(x);
}

int en_plan_make(const struct en_node *node, const struct st_pod_spec *pod, const char *container,
		 const struct en_apply_options *opt, struct en_plan *ret, struct err *err)
{
	struct planner x = {
		.node = node, .pod = pod, .container = container, .opt = opt, .own = -1};
	struct err why = ERR_INIT;
	enum apply_found found;
	int r;

	r = apply_read(node, pod, container, opt, &found, &x.d, &x.own, &why);
	if (r != 0)
		return err_set(err, r, "%s", why.msg);
	plan_pod(&x, found, &why);
	*ret = x.plan;
	return 0;
}
