#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/hash.h"
#include "extender/service_internal.h"
#include "kube/load.h"

#define PODS_CACHE 16384
#define NOMINATION_MS 600000

static int64_t monotonic_ms(void *ctx)
{
	struct timespec ts;

	(void)ctx;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

struct ex_service *ex_service_new(const struct ex_service_config *cfg, struct err *err)
{
	struct ex_service *s = calloc(1, sizeof(*s));

	if (s == NULL) {
		err_set(err, ERR_NOMEM, "out of memory");
		return NULL;
	}
	s->cfg = *cfg;
	if (s->cfg.pods_cache == 0)
		s->cfg.pods_cache = PODS_CACHE;
	if (s->cfg.nomination_ms == 0)
		s->cfg.nomination_ms = NOMINATION_MS;
	if (s->cfg.now == NULL)
		s->cfg.now = monotonic_ms;
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->settled, NULL);
	pthread_cond_init(&s->prices_due, NULL);
	s->cfg.placer.prices_apart = true;
	s->c = st_cluster_new(&cfg->state);
	s->placer = s->c != NULL ? po_placer_new(s->c, &s->cfg.placer) : NULL;
	s->recent = ex_recent_new(s->cfg.pods_cache);
	if (s->placer == NULL || s->recent == NULL) {
		err_set(err, ERR_NOMEM, "out of memory");
		ex_service_free(s);
		return NULL;
	}
	return s;
}

void ex_service_free(struct ex_service *s)
{
	if (s == NULL)
		return;
	ex_prices_stop(s);
	while (s->nominations != NULL)
		ex_nomination_drop(s, s->nominations->uid);
	ex_lookup_fini(&s->lookup);
	ex_recent_free(s->recent);
	po_placer_free(s->placer);
	st_cluster_free(s->c);
	pthread_cond_destroy(&s->settled);
	pthread_cond_destroy(&s->prices_due);
	pthread_mutex_destroy(&s->lock);
	free(s);
}

uint64_t ex_decision_number(const char *uid)
{
	return hash_str(uid, 0);
}

const struct st_contract_options *ex_service_contract(const struct ex_service *s)
{
	return &s->cfg.contract;
}

/* ---- loading ---- */

static int learn_pod(struct ex_service *s, const struct st_pod_spec *pod, bool remember,
		     struct err *err)
{
	struct st_pod_ident ident;
	struct st_request req;
	struct err why = ERR_INIT;
	char quoted[256];
	int rc;

	rc = st_contract_parse(pod, &s->cfg.contract, &req, NULL, &why);
	if (rc < 0) {
		/* It stays pending and is told why when it is filtered. */
		log_event(s->cfg.log, LOG_LEVEL_WARN, "pod-request-invalid", "pod=%s/%s reason=%s",
			  pod->ns, pod->name, log_quote(why.msg, quoted, sizeof(quoted)));
		return 0;
	}
	rc = po_placer_learn(s->placer, &req, err);
	if (rc < 0 || !remember)
		return rc;
	s->counts.learned++;
	ku_pod_ident(pod, &ident);
	ex_recent_extend(s->recent, 1);
	rc = ex_recent_put(s->recent, &req, &ident, err);
	if (rc == 0)
		ex_recent_get(s->recent, ident.uid)->learned = true;
	return rc;
}

static int on_pending(void *ctx, const struct st_pod_spec *pod, struct err *err)
{
	return learn_pod(ctx, pod, true, err);
}

static int on_bound(void *ctx, const struct st_pod_spec *pod, struct err *err)
{
	return learn_pod(ctx, pod, false, err);
}

static void say_of_pod(struct ex_service *s, const char *event, const struct st_pod_spec *pod,
		       const char *text)
{
	char quoted[512];

	log_event(s->cfg.log, LOG_LEVEL_WARN, event, "pod=%s/%s uid=%s node=%s reason=%s", pod->ns,
		  pod->name, pod->uid, pod->node, log_quote(text, quoted, sizeof(quoted)));
}

/* Of a node that is not there, one line says all. */
static void on_note(void *ctx, const struct st_pod_spec *pod, const char *text)
{
	struct ex_service *s = ctx;

	if (st_cluster_node_find(s->c, pod->node, strlen(pod->node)) == ST_NONE &&
	    ex_absent_put(&s->absent, pod->uid, pod->node, NULL) == 0)
		return;
	say_of_pod(s, "pod-allocation", pod, text);
}

static struct ku_loader loader_of(struct ex_service *s)
{
	return (struct ku_loader){.opt = &s->cfg.contract,
				  .on_pending = on_pending,
				  .on_bound = on_bound,
				  .on_note = on_note,
				  .ctx = s};
}

int ex_service_load_file(struct ex_service *s, const char *path, struct err *err)
{
	struct ku_loader how = loader_of(s);
	struct ex_survey found;
	char quoted[512];
	int rc = ku_load_file(s->c, path, &how, err);

	ex_absent_tell(&s->absent, s->cfg.log, "cluster-file");
	if (rc < 0)
		return rc;
	ex_survey_count(s->c, &found);
	if (found.nodes == 0)
		log_event(s->cfg.log, LOG_LEVEL_WARN, "no-nodes",
			  "file=%s remedy=\"kubectl get nodes,pods -A -o json\"",
			  log_quote(path, quoted, sizeof(quoted)));
	ex_survey_unready(s->c, s->cfg.log);
	ex_survey_duplicates(s->c, s->cfg.log);
	return 0;
}

int ex_service_load_text(struct ex_service *s, const char *text, size_t len, struct err *err)
{
	struct ku_loader how = loader_of(s);
	int rc = ku_load_text(s->c, text, len, &how, err);

	ex_absent_tell(&s->absent, s->cfg.log, "cluster-file");
	return rc;
}

int ex_service_start(struct ex_service *s, struct err *err)
{
	bool priced = true;
	int rc;

	pthread_mutex_lock(&s->lock);
	rc = po_placer_rebuild(s->placer, err);
	if (rc == 0)
		priced = ex_prices_start(s);
	pthread_mutex_unlock(&s->lock);
	if (!priced)
		log_event(s->cfg.log, LOG_LEVEL_ERROR, "prices-stand-still",
			  "reason=\"no memory or no thread for the price search\"");
	return rc;
}

/* ---- the journal ---- */

static int replay_bind(void *ctx, const struct st_pod_spec *pod, const struct st_pod_ident *ident,
		       const struct st_request *req, struct err *err)
{
	struct ex_service *s = ctx;
	const struct st_pod *known = st_cluster_pod_find(s->c, pod->uid);
	uint32_t node = st_cluster_node_find(s->c, pod->node, strlen(pod->node));
	struct err why = ERR_INIT;
	int rc;

	/* As for a bound pod of the file: its node may come back, and its line stays. */
	if (node == ST_NONE)
		return ex_absent_put(&s->absent, pod->uid, pod->node, err);
	ex_absent_drop(&s->absent, pod->uid);
	if (known != NULL && known->node != node)
		say_of_pod(s, "pod-on-another-node", pod,
			   "the cluster file has this pod on another node; the journal, which is "
			   "what was answered to the scheduler, counts");
	rc = ku_pod_observe_as(s->c, pod, ident, node, &s->cfg.contract, &why, err);
	if (rc < 0)
		return rc;
	if (why.msg[0] != '\0')
		say_of_pod(s, "pod-allocation", pod, why.msg);
	return req != NULL ? po_placer_learn(s->placer, req, err) : 0;
}

static int replay_release(void *ctx, const char *uid, struct err *err)
{
	struct ex_service *s = ctx;

	ex_absent_drop(&s->absent, uid);
	/* A release that was recorded twice is one. */
	if (st_cluster_pod_find(s->c, uid) == NULL)
		return 0;
	return st_cluster_pod_move(s->c, uid, ST_EVENT_GONE, err);
}

int ex_service_check_journal(struct ex_service *s, const char *path, struct err *err)
{
	struct ex_journal_reader r = {.bind = replay_bind, .release = replay_release, .ctx = s};
	int rc = ex_journal_check(path, &r, err);

	ex_absent_tell(&s->absent, s->cfg.log, "journal");
	return rc;
}

int ex_service_open_journal(struct ex_service *s, const char *path, bool sync, struct err *err)
{
	struct ex_journal_reader r = {.bind = replay_bind, .release = replay_release, .ctx = s};
	struct ex_journal_options o = {.sync = sync, .log = s->cfg.log};
	size_t torn = 0;
	char quoted[512];
	int rc;

	pthread_mutex_lock(&s->lock); /* the price thread may look in already */
	rc = ex_journal_open(path, &o, &r, &s->journal, &torn, err);
	pthread_mutex_unlock(&s->lock);
	ex_absent_tell(&s->absent, s->cfg.log, "journal");
	if (rc < 0)
		return rc;
	if (torn > 0)
		log_event(s->cfg.log, LOG_LEVEL_WARN, "journal-torn",
			  "file=%s bytes=%zu action=\"cut off: the last write was not finished\"",
			  log_quote(path, quoted, sizeof(quoted)), torn);
	return 0;
}

void ex_service_close_journal(struct ex_service *s)
{
	ex_journal_close(s->journal);
	s->journal = NULL;
}

bool ex_service_ready(const struct ex_service *s, const char **ret_why)
{
	*ret_why = "";
	if (s->journal != NULL && ex_journal_broken(s->journal))
		*ret_why = "the journal cannot be written";
	return (*ret_why)[0] == '\0';
}

/* ---- looking in ---- */

void ex_service_with(struct ex_service *s,
		     void (*fn)(void *ctx, const struct st_cluster *c, struct po_placer *p),
		     void *ctx)
{
	pthread_mutex_lock(&s->lock);
	fn(ctx, s->c, s->placer);
	pthread_mutex_unlock(&s->lock);
}

void ex_service_survey(struct ex_service *s, struct ex_survey *ret)
{
	pthread_mutex_lock(&s->lock);
	ex_survey_count(s->c, ret);
	pthread_mutex_unlock(&s->lock);
}

void ex_service_counts(struct ex_service *s, struct ex_service_counts *ret)
{
	pthread_mutex_lock(&s->lock);
	*ret = s->counts;
	ret->pods_cached = ex_recent_count(s->recent);
	ret->nominations = s->nomination_count - s->expected_count;
	ret->prices_published = s->pricer != NULL ? po_pricer_published(s->pricer) : 0;
	pthread_mutex_unlock(&s->lock);
}
