#include "test/lib/extender_fixture.h"

#include <criterion/criterion.h>
#include <curl/curl.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "test/lib/pod_text.h"

/* ---- texts ---- */

void xf_list_begin(struct buf *b)
{
	buf_puts(b, "{\"kind\":\"List\",\"items\":[{\"kind\":\"Other\"}");
}

void xf_list_end(struct buf *b)
{
	buf_puts(b, "]}");
}

void xf_node(struct buf *b, const char *name, unsigned gpus, int mem_mib, const char *product,
	     bool mig)
{
	buf_printf(b,
		   ",{\"kind\":\"Node\",\"metadata\":{\"name\":\"%s\",\"annotations\":{"
		   "\"tessera.dev/inventory\":\"{\\\"version\\\":1,\\\"gpus\\\":[",
		   name);
	for (unsigned i = 0; i < gpus; i++)
		buf_printf(b,
			   "%s{\\\"uuid\\\":\\\"GPU-%s-%u\\\",\\\"index\\\":%u,\\\"mem_mib\\\":%d,"
			   "\\\"product\\\":\\\"%s\\\",\\\"healthy\\\":true%s}",
			   i > 0 ? "," : "", name, i, i, mem_mib, product,
			   mig ? ",\\\"mig\\\":{\\\"capable\\\":true,\\\"enabled\\\":true}" : "");
	buf_puts(b,
		 "]}\"}},\"status\":{\"allocatable\":{\"cpu\":\"64\",\"memory\":\"512Gi\","
		 "\"pods\":\"250\"},\"conditions\":[{\"type\":\"Ready\",\"status\":\"True\"}]}}");
}

void xf_pod(struct buf *b, struct xf_pod p)
{
	buf_printf(
		b,
		"%s{\"kind\":\"Pod\",\"metadata\":{\"name\":\"p-%s\",\"namespace\":\"ns\","
		"\"uid\":\"%s\",\"annotations\":{%s}},\"spec\":{\"nodeName\":\"%s\","
		"\"priority\":%d,\"containers\":[{\"name\":\"main\",\"resources\":{\"limits\":{%s}}}"
		"]},\"status\":{\"phase\":\"%s\",\"nominatedNodeName\":\"%s\"}}",
		p.no_comma ? "" : ",", p.uid, p.uid, p.annotations != NULL ? p.annotations : "",
		p.node != NULL ? p.node : "", p.priority, p.limits != NULL ? p.limits : "",
		p.node != NULL && p.node[0] != '\0' ? "Running" : "Pending",
		p.nominated != NULL ? p.nominated : "");
}

char *xf_args(struct xf_pod p, const char *names)
{
	struct buf b = BUF_INIT;
	bool first = true;
	size_t len;

	p.no_comma = true;
	buf_puts(&b, "{\"Pod\":");
	xf_pod(&b, p);
	buf_puts(&b, ",\"Nodes\":null,\"NodeNames\":[");
	for (; *names != '\0'; names += len + (names[len] == ' ')) {
		/* not strcspn(): the sanitizer would measure the whole rest for each name */
		for (len = 0; names[len] != '\0' && names[len] != ' ';)
			len++;
		buf_printf(&b, "%s\"%.*s\"", first ? "" : ",", (int)len, names);
		first = false;
	}
	buf_puts(&b, "]}");
	return buf_take(&b);
}

char *xf_bind_args(const char *uid, const char *node)
{
	struct buf b = BUF_INIT;

	buf_printf(
		&b,
		"{\"PodName\":\"p-%s\",\"PodNamespace\":\"ns\",\"PodUID\":\"%s\",\"Node\":\"%s\"}",
		uid, uid, node);
	return buf_take(&b);
}

/* ---- a service ---- */

static int64_t fixture_clock(void *ctx)
{
	return *(int64_t *)ctx;
}

void xf_open(struct xf *f, const char *cluster, const struct ex_service_config *cfg,
	     const char *journal)
{
	struct ex_service_config c = {.state = ST_CONFIG_DEFAULT, .placer = {.learn = true}};
	struct err err = ERR_INIT;

	if (cfg != NULL)
		c = *cfg;
	memset(f, 0, sizeof(*f));
	f->log = c.log;
	c.now = fixture_clock;
	c.now_ctx = &f->now_ms;
	f->s = ex_service_new(&c, &err);
	cr_assert_not_null(f->s, "%s", err.msg);
	cr_assert_eq(ex_scratch_init(&f->scratch, &err), 0, "%s", err.msg);
	cr_assert_eq(ex_service_load_text(f->s, cluster, strlen(cluster), &err), 0, "%s", err.msg);
	cr_assert_eq(ex_service_start(f->s, &err), 0, "%s", err.msg);
	if (journal != NULL)
		cr_assert_eq(ex_service_open_journal(f->s, journal, false, &err), 0, "%s", err.msg);
}

static void check_books(void *ctx, const struct st_cluster *c, struct po_placer *p)
{
	(void)p;
	st_cluster_check(c, ST_NONE, ctx);
}

void xf_check(struct xf *f)
{
	struct err err = ERR_INIT;

	ex_service_with(f->s, check_books, &err);
	cr_assert_str_eq(err.msg, "");
}

void xf_close(struct xf *f)
{
	xf_check(f);
	ex_scratch_fini(&f->scratch);
	ex_service_close_journal(f->s);
	ex_service_free(f->s);
	f->s = NULL;
}

typedef int (*verb_fn)(struct ex_service *s, struct ex_scratch *x, const char *body, size_t len,
		       struct buf *out, struct err *err);

static char *run(struct xf *f, verb_fn verb, const char *body)
{
	struct buf out = BUF_INIT;
	struct err err = ERR_INIT;

	verb(f->s, &f->scratch, body, strlen(body), &out, &err);
	return buf_take(&out);
}

char *xf_filter(struct xf *f, const char *body)
{
	return run(f, ex_verb_filter, body);
}

char *xf_preempt(struct xf *f, const char *body)
{
	return run(f, ex_verb_preempt, body);
}

char *xf_prioritize(struct xf *f, const char *body)
{
	struct buf out = BUF_INIT;
	struct err err = ERR_INIT;

	ex_verb_prioritize(f->s, &f->scratch, body, strlen(body), 9, &out, &err);
	return buf_take(&out);
}

static cJSON *parsed(char *take_text)
{
	cJSON *tree = cJSON_Parse(take_text);

	cr_assert_not_null(tree, "no JSON: %s", take_text);
	free(take_text);
	return tree;
}

char *xf_bind(struct xf *f, const char *uid, const char *node)
{
	char *body = xf_bind_args(uid, node), *error;
	struct buf out = BUF_INIT;
	struct err err = ERR_INIT;
	cJSON *reply;

	ex_verb_bind(f->s, body, strlen(body), &out, &err);
	free(body);
	reply = parsed(buf_take(&out));
	error = strdup(cJSON_GetObjectItemCaseSensitive(reply, "Error")->valuestring);
	cJSON_Delete(reply);
	return error;
}

char *xf_passing(struct xf *f, struct xf_pod p, const char *names)
{
	char *body = xf_args(p, names);
	cJSON *reply = parsed(xf_filter(f, body));
	struct buf b = BUF_INIT;
	const cJSON *name;

	cJSON_ArrayForEach(name, cJSON_GetObjectItemCaseSensitive(reply, "NodeNames"))
		buf_printf(&b, "%s%s", b.len > 0 ? " " : "", name->valuestring);
	cJSON_Delete(reply);
	free(body);
	return buf_take(&b);
}

char *xf_reason(struct xf *f, struct xf_pod p, const char *names, const char *node,
		bool *ret_resolvable)
{
	char *body = xf_args(p, names), *text;
	cJSON *reply = parsed(xf_filter(f, body));
	const cJSON *failed, *final;

	failed = cJSON_GetObjectItemCaseSensitive(
		cJSON_GetObjectItemCaseSensitive(reply, "FailedNodes"), node);
	final = cJSON_GetObjectItemCaseSensitive(
		cJSON_GetObjectItemCaseSensitive(reply, "FailedAndUnresolvableNodes"), node);
	cr_assert(failed == NULL || final == NULL, "a node is in one map only");
	*ret_resolvable = failed != NULL;
	text = strdup(failed != NULL  ? failed->valuestring
		      : final != NULL ? final->valuestring
				      : "");
	cJSON_Delete(reply);
	free(body);
	return text;
}

/* The node with 10 points: there is one, and one only, unless the list is empty. */
static char *best_of(cJSON *list)
{
	const cJSON *entry;
	char *best = NULL;

	cJSON_ArrayForEach(entry, list)
	{
		double score = cJSON_GetObjectItemCaseSensitive(entry, "Score")->valuedouble;

		cr_assert(score >= 0 && score <= 10 && score == (int)score);
		if (score < 10)
			continue;
		cr_assert_null(best, "two nodes with 10 points");
		best = strdup(cJSON_GetObjectItemCaseSensitive(entry, "Host")->valuestring);
	}
	cr_assert(best != NULL || cJSON_GetArraySize(list) == 0);
	return best;
}

struct name_query {
	const char *name, *found;
};

static void find_name(void *ctx, const struct st_cluster *c, struct po_placer *p)
{
	struct name_query *q = ctx;

	(void)p;
	q->found = st_cluster_node(c, st_cluster_node_find(c, q->name, strlen(q->name)))->name;
}

const char *xf_schedule(struct xf *f, struct xf_pod p, const char *names)
{
	char *passing = xf_passing(f, p, names), *body, *best = NULL, *error;
	struct name_query q = {0};
	cJSON *list;

	if (passing[0] != '\0') {
		body = xf_args(p, passing);
		list = parsed(xf_prioritize(f, body));
		best = best_of(list);
		cJSON_Delete(list);
		free(body);
	}
	free(passing);
	if (best == NULL)
		return NULL;
	error = xf_bind(f, p.uid, best);
	cr_assert_str_eq(error, "");
	free(error);
	q.name = best;
	ex_service_with(f->s, find_name, &q);
	free(best);
	return q.found;
}

char *xf_cluster_json(struct xf *f)
{
	struct ku_arena *a = ku_arena_new();
	struct buf out = BUF_INIT;
	struct err err = ERR_INIT;
	struct ex_view v;

	cr_assert_eq(ex_view_capture(f->s, a, &v, &err), 0, "%s", err.msg);
	ex_view_json(&v, &out);
	ku_arena_free(a);
	return buf_take(&out);
}

static void dump_gpus(const struct st_node *n, struct buf *b)
{
	buf_printf(b, "%s cpu %lld mem %lld fences %u\n", n->name, (long long)n->cpu_left_milli,
		   (long long)n->mem_left_mib, n->fences);
	for (unsigned i = 0; i < n->gpu_count; i++) {
		const struct st_gpu *g = &n->gpus[i];

		buf_printf(b, " %s %s free %d limit %lld clients %u compute %d mig %llx/%llx\n",
			   g->uuid, st_mode_name((enum st_mode)g->mode), g->free_mib,
			   (long long)g->limit_mib, g->clients, g->compute_left_nano,
			   (unsigned long long)g->mig_placed, (unsigned long long)g->mig_foreign);
	}
}

static int by_uid(const void *a, const void *b)
{
	return strcmp((*(const struct st_pod *const *)a)->uid,
		      (*(const struct st_pod *const *)b)->uid);
}

static void dump_pod(const struct st_pod *p, struct buf *b)
{
	struct st_decision d = {.node = p->node, .grant_count = p->grant_count};
	char text[1024];

	if (p->grant_count > 0)
		memcpy(d.grants, p->grants, p->grant_count * sizeof(d.grants[0]));
	buf_printf(b, "%s %s/%s node %u priority %d cpu %lld mem %lld: %s\n", p->uid, p->ns,
		   p->name, p->node, p->priority, (long long)p->cpu_milli, (long long)p->mem_mib,
		   decision_text(&d, text, sizeof(text)));
}

static void dump(void *ctx, const struct st_cluster *c, struct po_placer *p)
{
	size_t count = st_cluster_pod_count(c), n = 0;
	/* NOLINTNEXTLINE(bugprone-sizeof-expression): an array of pointers */
	const struct st_pod **pods = calloc(count + 1, sizeof(*pods));

	(void)p;
	for (uint32_t i = 0; i < st_cluster_node_count(c); i++)
		dump_gpus(st_cluster_node(c, i), ctx);
	for (const struct st_pod *pod = NULL; (pod = st_cluster_pod_next(c, pod)) != NULL;)
		pods[n++] = pod;
	/* NOLINTNEXTLINE(bugprone-sizeof-expression): an array of pointers */
	qsort(pods, n, sizeof(*pods), by_uid);
	for (size_t i = 0; i < n; i++)
		dump_pod(pods[i], ctx);
	free(pods);
}

char *xf_books(struct xf *f)
{
	struct buf b = BUF_INIT;

	ex_service_with(f->s, dump, &b);
	return buf_take(&b);
}

/* ---- a live server ---- */

void xf_http_open(struct xf_http *h, struct xf *f, size_t max_body)
{
	struct ex_server_config cfg = {
		.listen = "127.0.0.1:0",
		.threads = 2,
		.max_body = max_body,
		.score_rest = 9,
		.scheduler = "tessera",
		.set_scheduler = EX_SET_LABELLED,
		.service = f->s,
		.metrics = &h->metrics,
		.log = f->log,
	};
	struct err err = ERR_INIT;

	memset(h, 0, sizeof(*h));
	cr_assert_eq(ex_server_start(&cfg, &h->server, &err), 0, "%s", err.msg);
	h->curl = curl_easy_init();
	cr_assert_not_null(h->curl);
}

void xf_http_close(struct xf_http *h)
{
	curl_easy_cleanup(h->curl);
	ex_server_stop(h->server);
}

static size_t on_data(char *data, size_t size, size_t count, void *ctx)
{
	buf_put(ctx, data, size * count);
	return size * count;
}

char *xf_http(struct xf_http *h, const char *path, const char *body, size_t len, const char *header,
	      long *ret_status)
{
	struct curl_slist *headers = NULL;
	struct buf out = BUF_INIT;
	char url[600];
	CURLcode rc;

	snprintf(url, sizeof(url), "%s%s", ex_server_url(h->server), path);
	curl_easy_reset(h->curl);
	if (header != NULL)
		headers = curl_slist_append(headers, header);
	if (header == NULL || strncmp(header, "Content-Type", 12) != 0)
		headers = curl_slist_append(headers, "Content-Type: application/json");
	headers = curl_slist_append(headers, "Expect:");
	curl_easy_setopt(h->curl, CURLOPT_URL, url);
	curl_easy_setopt(h->curl, CURLOPT_HTTPHEADER, headers);
	curl_easy_setopt(h->curl, CURLOPT_WRITEFUNCTION, on_data);
	curl_easy_setopt(h->curl, CURLOPT_WRITEDATA, &out);
	curl_easy_setopt(h->curl, CURLOPT_NOPROXY, "*");
	curl_easy_setopt(h->curl, CURLOPT_TIMEOUT, 60L);
	if (body != NULL) {
		curl_easy_setopt(h->curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)len);
		curl_easy_setopt(h->curl, CURLOPT_POSTFIELDS, body);
	}
	rc = curl_easy_perform(h->curl);
	cr_assert_eq(rc, CURLE_OK, "%s: %s", url, curl_easy_strerror(rc));
	curl_easy_getinfo(h->curl, CURLINFO_RESPONSE_CODE, ret_status);
	curl_slist_free_all(headers);
	return buf_take(&out);
}

char *xf_file(const char *path, size_t *ret_len)
{
	struct err err = ERR_INIT;
	char *text = NULL;

	cr_assert_eq(file_read(path, 64 << 20, &text, ret_len, &err), 0, "%s", err.msg);
	return text;
}
