#include "extender/view.h"

#include <string.h>

#include "extender/json.h"

#define NODES_A_HOLD 64 /* copied before the lock is given up once */

struct capture {
	struct ku_arena *a;
	struct ex_view *v;
	uint32_t next;
	const struct st_mig_geometry *geometry, *geometry_copy; /* the last one copied */
	bool failed;
};

const char *ex_view_taken_name(uint8_t taken)
{
	static const char *const names[] = {"", "unhealthy", "foreign", "gone"};

	return taken < 4 ? names[taken] : "other";
}

const char *ex_view_pod_state_name(uint8_t state)
{
	static const char *const names[] = {"binding", "bound", "observed"};

	return state < 3 ? names[state] : "other";
}

/* ---- the copy ---- */

static void *take(struct capture *c, const void *from, size_t size)
{
	void *to = ku_arena_alloc(c->a, size > 0 ? size : 1);

	if (to == NULL)
		c->failed = true;
	else if (from != NULL && size > 0)
		memcpy(to, from, size);
	return to;
}

static char *take_str(struct capture *c, const char *s)
{
	return s != NULL ? take(c, s, strlen(s) + 1) : NULL;
}

static void copy_gpus(struct capture *c, struct st_node *n)
{
	struct st_gpu *gpus = take(c, n->gpus, n->gpu_count * sizeof(*gpus));

	n->gpus = gpus;
	for (unsigned i = 0; i < n->gpu_count && !c->failed; i++) {
		gpus[i].uuid = take_str(c, gpus[i].uuid);
		gpus[i].taken_by = take_str(c, gpus[i].taken_by);
		gpus[i].mig_could = NULL; /* nothing of it is shown */
		if (gpus[i].mig == NULL)
			continue;
		if (gpus[i].mig != c->geometry) {
			c->geometry = gpus[i].mig;
			c->geometry_copy = take(c, c->geometry, sizeof(*c->geometry));
		}
		gpus[i].mig = c->geometry_copy;
	}
}

static void copy_pods(struct capture *c, const struct st_cluster *cl, struct ex_view_node *n)
{
	uint32_t count = 0;

	for (const struct st_pod *p = NULL; (p = st_cluster_node_pod_next(cl, n->n.id, p)) != NULL;)
		count++;
	n->pods = take(c, NULL, count * sizeof(n->pods[0]));
	for (const struct st_pod *p = NULL;
	     !c->failed && (p = st_cluster_node_pod_next(cl, n->n.id, p)) != NULL;) {
		n->pods[n->pod_count++] = (struct ex_view_pod){
			.uid = take_str(c, p->uid),
			.ns = take_str(c, p->ns),
			.name = take_str(c, p->name),
			.priority = p->priority,
			.cpu_milli = p->cpu_milli,
			.mem_mib = p->mem_mib,
			.state = p->state,
			.grant_count = p->grant_count,
			.deleting = p->deleting,
			.foreign = p->foreign,
			.fenced = p->fenced,
			.grants = take(c, p->grants, p->grant_count * sizeof(p->grants[0])),
		};
	}
}

static void copy_some(void *ctx, const struct st_cluster *cl, struct po_placer *p)
{
	struct capture *c = ctx;
	uint32_t end = c->next + NODES_A_HOLD;

	(void)p;
	/* A geometry seen in an earlier hold may be gone, and another one at its address. */
	c->geometry = NULL;
	for (; c->next < c->v->node_count && c->next < end && !c->failed; c->next++) {
		struct ex_view_node *n = &c->v->nodes[c->next];

		*n = (struct ex_view_node){.n = *st_cluster_node(cl, c->next)};
		n->n.name = take_str(c, n->n.name);
		n->n.why_unready = take_str(c, n->n.why_unready);
		copy_gpus(c, &n->n);
		copy_pods(c, cl, n);
	}
}

static void copy_start(void *ctx, const struct st_cluster *cl, struct po_placer *p)
{
	struct capture *c = ctx;

	c->v->policy = po_placer_policy(p)->name;
	c->v->node_count = st_cluster_node_count(cl);
	c->v->nodes = take(c, NULL, c->v->node_count * sizeof(c->v->nodes[0]));
	if (po_placer_fragmentation(p, &c->v->fragmentation, NULL) < 0)
		c->failed = true;
}

/* Products are ids of a pool that only grows: their names are read in a hold of their own. */
static void name_products(void *ctx, const struct st_cluster *cl, struct po_placer *p)
{
	struct capture *c = ctx;

	(void)p;
	for (uint32_t i = 0; i < c->v->node_count; i++) {
		struct ex_view_node *n = &c->v->nodes[i];

		n->product = n->n.product == STRPOOL_NONE
				     ? NULL
				     : strpool_str(st_cluster_products(cl), n->n.product);
	}
}

static void add_up(struct ex_view *v)
{
	for (uint32_t i = 0; i < v->node_count; i++) {
		const struct ex_view_node *n = &v->nodes[i];

		v->nodes_unready += n->n.unready || !n->n.present;
		v->nodes_fenced += n->n.fences > 0;
		v->pods += n->pod_count;
		for (uint32_t k = 0; k < n->pod_count; k++)
			v->pods_by_state[n->pods[k].state]++;
		v->gpus += n->n.gpu_count;
		for (unsigned k = 0; k < n->n.gpu_count; k++) {
			const struct st_gpu *g = &n->n.gpus[k];

			v->gpus_by_mode[g->mode]++;
			v->gpus_taken += g->taken != ST_TAKEN_NO;
			v->gpus_twin += g->twin;
			v->mem_mib += g->mem_mib;
			v->alloc_mib += g->alloc_mib;
			v->booked_mib += ex_view_booked_mib(g);
			v->limit_mib += g->limit_mib;
		}
	}
}

int ex_view_capture(struct ex_service *s, struct ku_arena *a, struct ex_view *ret, struct err *err)
{
	struct capture c = {.a = a, .v = ret};

	*ret = (struct ex_view){0};
	ex_service_with(s, copy_start, &c);
	while (!c.failed && c.next < ret->node_count)
		ex_service_with(s, copy_some, &c);
	if (c.failed)
		return err_set(err, ERR_NOMEM, "out of memory for a copy of the cluster");
	ex_service_with(s, name_products, &c);
	add_up(ret);
	return 0;
}

/* ---- JSON ---- */

static void put_mig(struct ex_json *j, const struct st_gpu *g)
{
	int profile, start;

	ex_json_key(j, "mig");
	ex_json_begin(j, '{');
	ex_json_key_string(j, "model", g->mig->model);
	ex_json_key_i64(j, "units", g->mig->units_total);
	ex_json_key_i64(j, "units_free", st_mig_units_free_in(g->mig, g->mig_open, g->mig_placed));
	ex_json_key_bool(j, "cut", g->mig_open != ST_MIG_ANYWHERE);
	ex_json_key(j, "instances");
	ex_json_begin(j, '[');
	for (int i = 0; st_mig_at(g->mig, g->mig_placed, i, &profile, &start); i++) {
		ex_json_begin(j, '{');
		ex_json_key_string(j, "profile", g->mig->profiles[profile].name);
		ex_json_key_i64(j, "start", start);
		ex_json_key_i64(j, "units", g->mig->profiles[profile].units);
		ex_json_key_bool(j, "foreign",
				 (g->mig_foreign & st_mig_bit(g->mig, profile, start)) != 0);
		ex_json_end(j, '}');
	}
	ex_json_end(j, ']');
	ex_json_end(j, '}');
}

/* What one container holds of GPU number gpu: one entry for each MIG instance. */
static void put_share(struct ex_json *j, const struct ex_view_pod *p, const struct st_grant *gr,
		      unsigned at)
{
	ex_json_begin(j, '{');
	ex_json_key_string(j, "uid", p->uid);
	ex_json_key_string(j, "namespace", p->ns);
	ex_json_key_string(j, "name", p->name);
	ex_json_key_string(j, "container", gr->container);
	if (gr->kind == ST_KIND_MIG) {
		ex_json_key_string(j, "profile", gr->profile);
		ex_json_key_i64(j, "start", gr->start[at]);
	} else {
		ex_json_key_i64(j, "request_mib", gr->request_mib);
		ex_json_key_i64(j, "limit_mib", gr->limit_mib);
	}
	if (gr->compute_nano > 0) {
		ex_json_key(j, "compute");
		ex_json_nano(j, gr->compute_nano);
	}
	ex_json_end(j, '}');
}

static void put_shares(struct ex_json *j, const struct ex_view_node *n, unsigned gpu)
{
	ex_json_key(j, "pods");
	ex_json_begin(j, '[');
	for (uint32_t i = 0; i < n->pod_count; i++) {
		for (unsigned k = 0; k < n->pods[i].grant_count; k++) {
			const struct st_grant *gr = &n->pods[i].grants[k];

			for (unsigned at = 0; at < gr->count; at++) {
				if (gr->gpu[at] == gpu)
					put_share(j, &n->pods[i], gr, at);
			}
		}
	}
	ex_json_end(j, ']');
}

static void put_gpu(struct ex_json *j, const struct ex_view_node *n, unsigned i)
{
	const struct st_gpu *g = &n->n.gpus[i];

	ex_json_begin(j, '{');
	ex_json_key_i64(j, "index", i);
	ex_json_key_string(j, "uuid", g->uuid);
	ex_json_key_i64(j, "memory_mib", g->mem_mib);
	ex_json_key_i64(j, "allocatable_mib", g->alloc_mib);
	ex_json_key_i64(j, "booked_mib", ex_view_booked_mib(g));
	ex_json_key_i64(j, "limit_mib", g->limit_mib);
	ex_json_key_string(j, "mode", st_mode_name((enum st_mode)g->mode));
	ex_json_key_i64(j, "clients", g->clients);
	ex_json_key(j, "compute_booked");
	ex_json_nano(j, ST_NANO - g->compute_left_nano);
	if (g->taken != ST_TAKEN_NO) {
		ex_json_key_string(j, "taken", ex_view_taken_name(g->taken));
		ex_json_key_string(j, "taken_by", g->taken_by);
	}
	if (g->mig != NULL)
		put_mig(j, g);
	put_shares(j, n, i);
	ex_json_end(j, '}');
}

static void put_pod(struct ex_json *j, const struct ex_view_pod *p)
{
	ex_json_begin(j, '{');
	ex_json_key_string(j, "uid", p->uid);
	ex_json_key_string(j, "namespace", p->ns);
	ex_json_key_string(j, "name", p->name);
	ex_json_key_string(j, "state", ex_view_pod_state_name(p->state));
	ex_json_key_i64(j, "priority", p->priority);
	ex_json_key_i64(j, "cpu_milli", p->cpu_milli);
	ex_json_key_i64(j, "memory_mib", p->mem_mib);
	ex_json_key_bool(j, "deleting", p->deleting);
	ex_json_key_bool(j, "foreign", p->foreign);
	ex_json_key_bool(j, "fenced", p->fenced);
	ex_json_end(j, '}');
}

static void put_node(struct ex_json *j, const struct ex_view_node *n)
{
	ex_json_begin(j, '{');
	ex_json_key_string(j, "name", n->n.name);
	ex_json_key_string(j, "product", n->product);
	ex_json_key_bool(j, "ready", n->n.present && !n->n.unready);
	if (n->n.unready)
		ex_json_key_string(j, "why", n->n.why_unready);
	ex_json_key_bool(j, "inventory", n->n.from_inventory);
	ex_json_key_i64(j, "fences", n->n.fences);
	ex_json_key_i64(j, "cpu_milli", n->n.cpu_milli);
	ex_json_key_i64(j, "cpu_free_milli", n->n.cpu_left_milli);
	ex_json_key_i64(j, "memory_mib", n->n.mem_mib);
	ex_json_key_i64(j, "memory_free_mib", n->n.mem_left_mib);
	ex_json_key(j, "gpus");
	ex_json_begin(j, '[');
	for (unsigned i = 0; i < n->n.gpu_count; i++)
		put_gpu(j, n, i);
	ex_json_end(j, ']');
	ex_json_key(j, "pods");
	ex_json_begin(j, '[');
	for (uint32_t i = 0; i < n->pod_count; i++)
		put_pod(j, &n->pods[i]);
	ex_json_end(j, ']');
	ex_json_end(j, '}');
}

static void put_totals(struct ex_json *j, const struct ex_view *v)
{
	ex_json_key(j, "totals");
	ex_json_begin(j, '{');
	ex_json_key_i64(j, "nodes", v->node_count);
	ex_json_key_i64(j, "nodes_unready", v->nodes_unready);
	ex_json_key_i64(j, "nodes_fenced", v->nodes_fenced);
	ex_json_key_i64(j, "pods", v->pods);
	ex_json_key_i64(j, "gpus", v->gpus);
	ex_json_key_i64(j, "gpus_taken", v->gpus_taken);
	ex_json_key(j, "gpus_by_mode");
	ex_json_begin(j, '{');
	for (int m = 0; m < ST_MODE_COUNT; m++)
		ex_json_key_i64(j, st_mode_name((enum st_mode)m), v->gpus_by_mode[m]);
	ex_json_end(j, '}');
	ex_json_key_i64(j, "memory_mib", v->mem_mib);
	ex_json_key_i64(j, "allocatable_mib", v->alloc_mib);
	ex_json_key_i64(j, "booked_mib", v->booked_mib);
	ex_json_key_i64(j, "limit_mib", v->limit_mib);
	ex_json_end(j, '}');
}

void ex_view_json(const struct ex_view *v, struct buf *out)
{
	const struct po_fragmentation *f = &v->fragmentation;
	struct ex_json j = {.b = out};

	ex_json_begin(&j, '{');
	ex_json_key_i64(&j, "version", 1);
	ex_json_key_string(&j, "policy", v->policy);
	ex_json_key(&j, "fragmentation");
	ex_json_begin(&j, '{');
	ex_json_key_i64(&j, "fragmented_gpu_milli", f->divisor > 0 ? f->n / f->divisor : 0);
	ex_json_key_i64(&j, "idle_gpu_milli", f->idle_milli);
	ex_json_end(&j, '}');
	put_totals(&j, v);
	ex_json_key(&j, "nodes");
	ex_json_begin(&j, '[');
	for (uint32_t i = 0; i < v->node_count; i++)
		put_node(&j, &v->nodes[i]);
	ex_json_end(&j, ']');
	ex_json_end(&j, '}');
	buf_putc(out, '\n');
}
