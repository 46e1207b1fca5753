#include "test/lib/api_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/buf.h"

#define WAIT_MS 30000

static void die(const char *what, const char *why)
{
	fprintf(stderr, "%s: %s\n", what, why);
	abort();
}

/* ---- life ---- */

void xa_init(struct xa *x)
{
	*x = (struct xa){0};
	x->c = fake_cluster_start(1);
	x->kube.server = strdup(fake_api_url(fake_cluster_api(x->c)));
	x->kube.ns = strdup("kube-system");
	x->cfg.lease_ns = "kube-system";
	x->cfg.lease_name = "tessera-extender";
	x->cfg.identity = "one";
	x->cfg.bind_ms = 2000;
	x->cfg.seed = 1;
}

void xa_open(struct xa *x, bool wait)
{
	struct ex_service_config cfg = {
		.state = ST_CONFIG_DEFAULT, .mirrors = true, .placer = {.learn = true}};
	struct err err = ERR_INIT;

	x->s = ex_service_new(&cfg, &err);
	if (x->s == NULL || ex_scratch_init(&x->scratch, &err) < 0)
		die("service", err.msg);
	x->cfg.kube = &x->kube;
	x->cfg.service = x->s;
	if (ex_api_start(&x->cfg, &x->api, &err) < 0)
		die("api", err.msg);
	if (wait && !xa_wait_ready(x, true))
		die("not ready", xa_why(x));
}

static void recount(void *ctx, const struct st_cluster *c, struct po_placer *p)
{
	(void)p;
	st_cluster_check(c, ST_NONE, ctx);
}

void xa_check(struct xa *x)
{
	struct err err = ERR_INIT;

	ex_service_with(x->s, recount, &err);
	if (err.msg[0] != '\0')
		die("books", err.msg);
}

void xa_shut(struct xa *x)
{
	xa_check(x);
	ex_api_stop(x->api);
	x->api = NULL;
	xa_check(x);
	ex_scratch_fini(&x->scratch);
	ex_service_free(x->s);
	x->s = NULL;
}

void xa_fini(struct xa *x)
{
	if (x->s != NULL)
		xa_shut(x);
	fake_cluster_stop(x->c);
	ku_config_fini(&x->kube);
}

/* ---- binds ---- */

static void on_bound(struct ex_api_waiter *w, int rc, const struct err *err)
{
	struct xa_bind *b = (struct xa_bind *)w; /* its first member */

	pthread_mutex_lock(&b->lock);
	b->rc = rc;
	b->err = *err;
	b->done = true;
	pthread_cond_broadcast(&b->changed);
	pthread_mutex_unlock(&b->lock);
}

void xa_bind_begin(struct xa *x, struct xa_bind *b, const char *pod, const char *uid,
		   const char *node)
{
	char *text[4] = {strdup(pod), strdup("ns"), strdup(uid), strdup(node)};
	struct ex_bind_args args = {
		.name = text[0], .ns = text[1], .uid = text[2], .node = text[3]};

	memset(b, 0, sizeof(*b));
	pthread_mutex_init(&b->lock, NULL);
	pthread_cond_init(&b->changed, NULL);
	b->w.done = on_bound;
	ex_api_bind(x->api, &args, &b->w);
	ex_bind_args_fini(&args);
}

const char *xa_bind_end(struct xa_bind *b)
{
	pthread_mutex_lock(&b->lock);
	while (!b->done)
		pthread_cond_wait(&b->changed, &b->lock);
	pthread_mutex_unlock(&b->lock);
	pthread_cond_destroy(&b->changed);
	pthread_mutex_destroy(&b->lock);
	return b->rc == 0 ? "" : b->err.msg;
}

bool xa_bind_is_done(struct xa_bind *b)
{
	bool done;

	pthread_mutex_lock(&b->lock);
	done = b->done;
	pthread_mutex_unlock(&b->lock);
	return done;
}

const char *xa_bind(struct xa *x, const char *pod, const char *uid, const char *node)
{
	static _Thread_local struct xa_bind b;

	xa_bind_begin(x, &b, pod, uid, node);
	return xa_bind_end(&b);
}

const char *xa_filter(struct xa *x, const char *pod, const char *uid, const char *annotations,
		      const char *names)
{
	static _Thread_local char reply[8192];
	struct buf in = BUF_INIT, out = BUF_INIT;
	struct err err = ERR_INIT;
	size_t len;

	buf_printf(&in,
		   "{\"Pod\":{\"metadata\":{\"name\":\"%s\",\"namespace\":\"ns\",\"uid\":\"%s\","
		   "\"annotations\":{%s}},\"spec\":{\"containers\":[{\"name\":\"main\"}]},"
		   "\"status\":{\"phase\":\"Pending\"}},\"Nodes\":null,\"NodeNames\":[",
		   pod, uid, annotations);
	for (const char *n = names; *n != '\0'; n += len + (n[len] == ' ')) {
		len = strcspn(n, " ");
		buf_printf(&in, "%s\"%.*s\"", n > names ? "," : "", (int)len, n);
	}
	buf_puts(&in, "]}");
	ex_verb_filter(x->s, &x->scratch, in.data, in.len, &out, &err);
	snprintf(reply, sizeof(reply), "%s", buf_str(&out));
	buf_fini(&in);
	buf_fini(&out);
	return reply;
}

/* ---- looking ---- */

struct look {
	const char *what;
	int mib;
	bool found, observed, fenced;
};

static void look(void *ctx, const struct st_cluster *c, struct po_placer *p)
{
	struct look *l = ctx;
	const struct st_pod *pod;

	(void)p;
	l->mib = -1;
	pod = st_cluster_pod_find(c, l->what);
	l->found = pod != NULL;
	l->observed = pod != NULL && pod->state == ST_POD_OBSERVED;
	for (uint32_t i = 0; i < st_cluster_node_count(c); i++) {
		const struct st_node *n = st_cluster_node(c, i);

		if (strcmp(n->name, l->what) == 0)
			l->fenced = n->fences > 0;
		for (unsigned k = 0; k < n->gpu_count; k++) {
			if (strcmp(n->gpus[k].uuid, l->what) == 0)
				l->mib = n->gpus[k].alloc_mib - n->gpus[k].free_mib;
		}
	}
}

static struct look look_at(struct xa *x, const char *what)
{
	struct look l = {.what = what};

	ex_service_with(x->s, look, &l);
	return l;
}

int xa_booked(struct xa *x, const char *gpu)
{
	return look_at(x, gpu).mib;
}

bool xa_fenced(struct xa *x, const char *node)
{
	return look_at(x, node).fenced;
}

bool xa_pod_known(struct xa *x, const char *uid)
{
	return look_at(x, uid).found;
}

const char *xa_why(struct xa *x)
{
	static _Thread_local char why[300];

	ex_api_ready(x->api, why, sizeof(why));
	return why;
}

/* One step of waiting: it proves nothing, it only lets others go on. */
void xa_breathe(void)
{
	const struct timespec pause = {.tv_nsec = 1000000};

	nanosleep(&pause, NULL);
}

bool xa_wait_booked(struct xa *x, const char *gpu, int mib)
{
	for (int i = 0; i < WAIT_MS && xa_booked(x, gpu) != mib; i++)
		xa_breathe();
	return xa_booked(x, gpu) == mib;
}

bool xa_wait_observed(struct xa *x, const char *uid)
{
	for (int i = 0; i < WAIT_MS && !look_at(x, uid).observed; i++)
		xa_breathe();
	return look_at(x, uid).observed;
}

bool xa_wait_fenced(struct xa *x, const char *node, bool fenced)
{
	for (int i = 0; i < WAIT_MS && xa_fenced(x, node) != fenced; i++)
		xa_breathe();
	return xa_fenced(x, node) == fenced;
}

bool xa_wait_ready(struct xa *x, bool ready)
{
	for (int i = 0; i < WAIT_MS && (xa_why(x)[0] == '\0') != ready; i++)
		xa_breathe();
	return (xa_why(x)[0] == '\0') == ready;
}

bool xa_wait_unsettled(struct xa *x, size_t count)
{
	struct ex_api_stats s = {0};

	for (int i = 0; i < WAIT_MS; i++) {
		ex_api_get_stats(x->api, &s);
		if (s.binds_unsettled == count)
			return true;
		xa_breathe();
	}
	return false;
}

bool xa_wait_filter(struct xa *x, const char *pod, const char *uid, const char *annotations,
		    const char *names, const char *text)
{
	for (int i = 0; i < WAIT_MS; i++) {
		if (strstr(xa_filter(x, pod, uid, annotations, names), text) != NULL)
			return true;
		xa_breathe();
	}
	return false;
}

bool xa_wait_why(struct xa *x, const char *text)
{
	for (int i = 0; i < WAIT_MS && strstr(xa_why(x), text) == NULL; i++)
		xa_breathe();
	return strstr(xa_why(x), text) != NULL;
}
