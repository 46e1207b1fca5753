/* MIG instances for the plugin's containers. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "enforcer/run_internal.h"

struct question {
	const char *gpu;
	int start;
	bool yes;
};

static void ask(void *ctx, const struct en_holding *h)
{
	struct question *q = ctx;

	for (int i = 0; !h->stopped && i < h->grant.count; i++)
		q->yes |= strcmp(h->gpus[i], q->gpu) == 0 &&
			  (q->start < 0 ||
			   (h->grant.kind == ST_KIND_MIG && h->grant.start[i] == q->start));
}

static bool is_held(void *ctx, const char *gpu, int start)
{
	const struct agent *a = ctx;
	struct question q = {.gpu = gpu, .start = start};

	if (a->plugin != NULL)
		en_plugin_each(a->plugin, ask, &q);
	return q.yes;
}

int run_mig_start(struct agent *a, struct err *err)
{
	char path[EN_PATH_CAP];
	struct en_mig_options o = {.way = (enum en_mig_way)en_mig_way_parse(a->o.mig),
				   .library = run_given(a->o.nvml),
				   .path = path,
				   .linger_ms = a->o.mig_linger_s * 1000,
				   .log = a->log,
				   .held = is_held,
				   .ctx = a};

	if (en_mig_way_parse(a->o.mig) < 0)
		return err_set(err, ERR_INVALID,
			       "--mig: \"%.40s\" is not static, dynamic or switch", a->o.mig);
	if ((size_t)snprintf(path, sizeof(path), "%s/mig", a->o.run_dir) >= sizeof(path))
		return err_set(err, ERR_INVALID, "--run-dir: the path is too long");
	return en_mig_new(&o, &a->mig, err);
}

/* The loop's probe as it was last, for another thread. NULL: no memory. */
static struct en_probe *probe_copy(struct agent *a)
{
	struct en_probe *p = malloc(sizeof(*p));

	if (p == NULL)
		return NULL;
	pthread_mutex_lock(&a->lock);
	memcpy(p, a->probe, sizeof(*p));
	pthread_mutex_unlock(&a->lock);
	return p;
}

static int make(void *ctx, const struct en_holding *h, struct err *err)
{
	struct agent *a = ctx;
	struct en_probe *p = probe_copy(a);
	int r;

	if (p == NULL)
		return err_set(err, ERR_NOMEM, "out of memory");
	r = en_mig_make(a->mig, p, h, run_now_ms(), err);
	if (r == 0) {
		en_mig_mark(a->mig, p);
		r = run_tell_plugin(a, p, err);
	}
	free(p);
	atomic_store(&a->look_again, true); /* whatever came of it, the inventory shows what is */
	run_wake(a);
	return r;
}

static void drop(void *ctx, const struct en_holding *h)
{
	struct agent *a = ctx;

	en_mig_drop(a->mig, h, run_now_ms());
}

void run_mig_ops(struct en_agent_ops *ops)
{
	ops->instances_make = make;
	ops->instances_drop = drop;
}

void run_mig_mark(struct agent *a, struct en_probe *p)
{
	if (a->mig != NULL)
		en_mig_mark(a->mig, p);
}

/* What containers hold is known once the runtime has told. */
bool run_mig_sweep(struct agent *a)
{
	return a->mig != NULL && a->ever_synchronized && !a->let_go &&
	       en_mig_sweep(a->mig, a->probe, run_now_ms()) > 0;
}
