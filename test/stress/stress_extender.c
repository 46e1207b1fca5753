/* Threads filter, bind, release and look in over HTTP, all at once, without prices and with those that a
 * thread of the service searches for; afterwards the books are recounted, and a restart from the journal
 * finds the same pods. For ThreadSanitizer. */
#include <curl/curl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/rng.h"
#include "extender/extender.h"

#define THREADS 4
#define ROUNDS 60
#define NODES 6

static const char *base_url;

static void die(const char *what, const char *why)
{
	fprintf(stderr, "%s: %s\n", what, why);
	exit(1);
}

/* ---- texts ---- */

static void put_cluster(struct buf *b)
{
	buf_puts(b, "{\"kind\":\"NodeList\",\"items\":[");
	for (int i = 0; i < NODES; i++)
		buf_printf(
			b,
			"%s{\"metadata\":{\"name\":\"n%d\",\"labels\":{\"nvidia.com/gpu.count\":\"4\","
			"\"nvidia.com/gpu.memory\":\"40960\",\"nvidia.com/gpu.product\":\"A\"}},"
			"\"status\":{\"allocatable\":{\"cpu\":\"64\",\"memory\":\"1Ti\",\"pods\":\"500\"},"
			"\"conditions\":[{\"type\":\"Ready\",\"status\":\"True\"}]}}",
			i > 0 ? "," : "", i);
	buf_puts(b, "]}");
}

static void put_args(struct buf *b, const char *uid, uint64_t random)
{
	buf_printf(
		b,
		"{\"Pod\":{\"metadata\":{\"name\":\"p\",\"namespace\":\"ns\",\"uid\":\"%s\","
		"\"annotations\":{\"gpu-memory\":\"%d\"}},\"spec\":{\"priority\":%d,\"containers\":"
		"[{\"name\":\"c\"}]},\"status\":{\"nominatedNodeName\":\"%s\"}},\"NodeNames\":[",
		uid, 512 + (int)(random % 8192), (int)(random % 3), random % 7 == 0 ? "n1" : "");
	for (int i = 0; i < NODES; i++)
		buf_printf(b, "%s\"n%d\"", i > 0 ? "," : "", i);
	buf_puts(b, "]}");
}

/* ---- one client ---- */

struct client {
	pthread_t thread;
	CURL *curl;
	struct curl_slist *headers;
	struct rng rng;
	int number, bound, released;
	struct buf in, out;
};

static size_t on_data(char *data, size_t size, size_t count, void *ctx)
{
	buf_put(ctx, data, size * count);
	return size * count;
}

/* Posts c->in, or gets where it is empty; the reply's body. */
static const char *call(struct client *c, const char *path)
{
	char url[300];
	CURLcode rc;

	snprintf(url, sizeof(url), "%s%s", base_url, path);
	buf_reset(&c->out);
	curl_easy_reset(c->curl);
	curl_easy_setopt(c->curl, CURLOPT_URL, url);
	curl_easy_setopt(c->curl, CURLOPT_NOPROXY, "*");
	curl_easy_setopt(c->curl, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(c->curl, CURLOPT_HTTPHEADER, c->headers);
	curl_easy_setopt(c->curl, CURLOPT_WRITEFUNCTION, on_data);
	curl_easy_setopt(c->curl, CURLOPT_WRITEDATA, &c->out);
	if (c->in.len > 0) {
		curl_easy_setopt(c->curl, CURLOPT_POSTFIELDSIZE, (long)c->in.len);
		curl_easy_setopt(c->curl, CURLOPT_POSTFIELDS, c->in.data);
	}
	rc = curl_easy_perform(c->curl);
	if (rc != CURLE_OK)
		die(path, curl_easy_strerror(rc));
	return buf_str(&c->out);
}

static void one_pod(struct client *c, int round)
{
	uint64_t random = rng_next(&c->rng);
	const char *reply;
	char uid[32];

	/* Every fifth UID is shared by all threads: binds and releases of one pod meet. */
	snprintf(uid, sizeof(uid), "u-%d-%d", round % 5 == 0 ? -1 : c->number, round);
	buf_reset(&c->in);
	put_args(&c->in, uid, random);
	reply = call(c, "/v1/filter");
	if (strstr(reply, "\"Error\":\"\"") == NULL)
		die("filter", reply);
	call(c, "/v1/prioritize");
	buf_reset(&c->in);
	buf_printf(&c->in,
		   "{\"PodName\":\"p\",\"PodNamespace\":\"ns\",\"PodUID\":\"%s\",\"Node\":\"n%d\"}",
		   uid, (int)(random % NODES));
	reply = call(c, "/v1/bind");
	c->bound += strcmp(reply, "{\"Error\":\"\"}") == 0;
	if (random % 3 == 0) {
		buf_reset(&c->in);
		buf_printf(&c->in, "{\"uid\":\"%s\"}", uid);
		c->released += strstr(call(c, "/api/v1/pods/release"), "true") != NULL;
	}
	buf_reset(&c->in);
	if (random % 10 == 0)
		call(c, random % 20 == 0 ? "/api/v1/cluster" : "/metrics");
}

static void *client_run(void *arg)
{
	struct client *c = arg;

	for (int i = 0; i < ROUNDS; i++)
		one_pod(c, i);
	return NULL;
}

static void clients_run(uint64_t seed)
{
	struct client clients[THREADS] = {0};
	int bound = 0;

	for (int i = 0; i < THREADS; i++) {
		clients[i].number = i;
		rng_init(&clients[i].rng, seed + (uint64_t)i);
		clients[i].curl = curl_easy_init();
		clients[i].headers = curl_slist_append(NULL, "Content-Type: application/json");
		if (clients[i].curl == NULL ||
		    pthread_create(&clients[i].thread, NULL, client_run, &clients[i]) != 0)
			die("client", "cannot start");
	}
	for (int i = 0; i < THREADS; i++) {
		pthread_join(clients[i].thread, NULL);
		bound += clients[i].bound;
		curl_slist_free_all(clients[i].headers);
		curl_easy_cleanup(clients[i].curl);
		buf_fini(&clients[i].in);
		buf_fini(&clients[i].out);
	}
	printf("%d binds succeeded\n", bound);
	if (bound == 0)
		die("clients", "nothing was bound");
}

/* ---- the service ---- */

static struct ex_service *open_service(const char *cluster, const char *journal,
				       const struct po_policy *policy)
{
	struct ex_service_config cfg = {.state = ST_CONFIG_DEFAULT,
					.placer = {.policy = policy, .learn = true}};
	struct err err = ERR_INIT;
	struct ex_service *s = ex_service_new(&cfg, &err);

	if (s == NULL || ex_service_load_text(s, cluster, strlen(cluster), &err) < 0 ||
	    ex_service_start(s, &err) < 0 || ex_service_open_journal(s, journal, false, &err) < 0)
		die("service", err.msg);
	return s;
}

struct seen {
	size_t pods;
	int64_t free_mib;
	struct err err;
};

static void look(void *ctx, const struct st_cluster *c, struct po_placer *p)
{
	struct seen *s = ctx;

	(void)p;
	s->pods = st_cluster_pod_count(c);
	for (uint32_t i = 0; i < st_cluster_node_count(c); i++) {
		const struct st_node *n = st_cluster_node(c, i);

		for (unsigned k = 0; k < n->gpu_count; k++)
			s->free_mib = s->free_mib * 31 + n->gpus[k].free_mib;
	}
	if (st_cluster_check(c, ST_NONE, &s->err) < 0)
		die("books", s->err.msg);
}

static void play(const char *policy, const char *cluster, uint64_t seed)
{
	static struct ex_metrics metrics;
	char journal[] = "/tmp/tessera-stress-XXXXXX";
	struct seen before = {0}, after = {0};
	struct err err = ERR_INIT;
	struct ex_server *server;
	struct ex_service *s;
	int fd = mkstemp(journal);

	if (fd < 0)
		die("journal", "cannot make a file");
	close(fd);
	printf("policy %s, seed %d\n", policy, (int)seed);
	s = open_service(cluster, journal, po_policy_find(policy));
	if (ex_server_start(&(struct ex_server_config){.listen = "127.0.0.1:0",
						       .threads = 4,
						       .max_body = 1 << 20,
						       .score_rest = 9,
						       .service = s,
						       .metrics = &metrics},
			    &server, &err) < 0)
		die("server", err.msg);
	base_url = ex_server_url(server);
	clients_run(seed);
	ex_server_stop(server);
	ex_service_with(s, look, &before);
	ex_service_close_journal(s);
	ex_service_free(s);

	s = open_service(cluster, journal, po_policy_find(policy));
	ex_service_with(s, look, &after);
	ex_service_close_journal(s);
	ex_service_free(s);
	unlink(journal);
	if (before.pods != after.pods || before.free_mib != after.free_mib)
		die("restart", "the books differ");
	printf("%zu pods before and after a restart\n", after.pods);
}

int main(void)
{
	struct buf cluster = BUF_INIT;

	curl_global_init(CURL_GLOBAL_DEFAULT);
	put_cluster(&cluster);
	play("ca-fgd", buf_str(&cluster), 7);
	play("bid-price", buf_str(&cluster), 8);
	buf_fini(&cluster);
	curl_global_cleanup();
	return 0;
}
