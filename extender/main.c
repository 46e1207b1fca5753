/* tessera-extender: a cluster from a file or an API server, served until it is told to stop. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/hash.h"
#include "extender/api.h"
#include "extender/options.h"
#include "extender/server.h"

#define EXIT_USAGE 2 /* wrong options or files */

static int print(void (*text)(struct buf *b))
{
	struct buf b = BUF_INIT;
	bool ok;

	text(&b);
	ok = buf_ok(&b) && fwrite(b.data, 1, b.len, stdout) == b.len && fflush(stdout) == 0;
	buf_fini(&b);
	return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}

static void put_version(struct buf *b)
{
	buf_puts(b, "tessera-extender " EX_VERSION "\n");
}

/* 300 binds at once are 300 descriptors; the usual soft limit of 1,024 is near. */
static void raise_descriptors(void)
{
	struct rlimit r;

	if (getrlimit(RLIMIT_NOFILE, &r) == 0 && r.rlim_cur < r.rlim_max) {
		r.rlim_cur = r.rlim_max < 65536 ? r.rlim_max : 65536;
		setrlimit(RLIMIT_NOFILE, &r);
	}
}

/* The signals that end the program are waited for, in every thread's place. */
static void take_signals(sigset_t *set)
{
	sigemptyset(set);
	sigaddset(set, SIGINT);
	sigaddset(set, SIGTERM);
	pthread_sigmask(SIG_BLOCK, set, NULL);
	signal(SIGPIPE, SIG_IGN);
}

static struct ex_service_config service_config(const struct ex_options *o, struct log *log)
{
	return (struct ex_service_config){
		.state =
			{
				.reserve_mib = (int32_t)o->reserve_mib,
				.clients_max = (int32_t)o->clients_max,
				.overcommit_permille = (int32_t)o->overcommit_permille,
			},
		.contract = {.prefix = o->prefix, .hami = o->hami, .cdi = o->cdi},
		.placer =
			{
				.policy = po_policy_find(o->policy),
				.ties = strcmp(o->ties, "random") == 0 ? PO_TIES_RANDOM
								       : PO_TIES_RANK,
				.seed = (uint64_t)o->seed,
				.popularity_percent = (int)o->popularity,
				.learn = true,
			},
		.mirrors = o->cluster[0] == '\0',
		.pods_cache = (size_t)o->pods_cache,
		.nomination_ms = o->nomination_s * 1000,
		.log = log,
	};
}

static int load(struct ex_service *s, const struct ex_options *o, struct err *err)
{
	int rc;

	rc = ex_service_load_file(s, o->cluster, err);
	if (rc == 0)
		rc = ex_service_start(s, err);
	if (rc == 0 && o->journal[0] != '\0')
		rc = ex_service_open_journal(s, o->journal, o->journal_sync, err);
	return rc;
}

/* ---- an API server ---- */

/* Of this process and no other: host, process, time. */
static void make_identity(const struct ex_options *o, char *buf, size_t cap)
{
	struct timespec now;
	char host[128] = "";
	uint64_t number;

	if (o->identity[0] != '\0') {
		snprintf(buf, cap, "%s", o->identity);
		return;
	}
	gethostname(host, sizeof(host) - 1);
	clock_gettime(CLOCK_REALTIME, &now);
	number = hash_bytes(&now, sizeof(now), (uint64_t)getpid());
	snprintf(buf, cap, "%s_%016llx", host[0] != '\0' ? host : "tessera",
		 (unsigned long long)number);
}

static int read_kube(const struct ex_options *o, struct ku_config *ret, struct err *err)
{
	if (o->in_cluster)
		return ku_config_in_cluster(NULL, ret, err);
	return ku_config_load(o->kubeconfig, o->context[0] != '\0' ? o->context : NULL, ret, err);
}

static int start_api(struct ex_service *s, const struct ex_options *o, const struct ku_config *kube,
		     struct log *log, struct ex_api **ret, struct err *err)
{
	char identity[200];
	struct ex_api_config cfg = {
		.kube = kube,
		.service = s,
		.log = log,
		.leader_elect = o->leader_elect,
		.lease_ns = o->lease_namespace[0] != '\0' ? o->lease_namespace
			    : o->in_cluster		  ? kube->ns
							  : "kube-system",
		.lease_name = o->lease_name,
		.identity = identity,
		.lease_ms = o->lease_s * 1000,
		.renew_ms = o->renew_s * 1000,
		.retry_ms = o->retry_s * 1000,
		.bind_ms = o->bind_ms,
		.totals = o->node_totals,
		.instance = identity,
	};

	make_identity(o, identity, sizeof(identity));
	cfg.seed = hash_str(identity, 0);
	return ex_api_start(&cfg, ret, err);
}

/* ---- serving ---- */

static int serve(struct ex_service *s, struct ex_api *api, const struct ex_options *o,
		 struct log *log, const sigset_t *signals, struct err *err)
{
	static struct ex_metrics metrics;
	struct ex_server_config cfg = {
		.listen = o->listen,
		.threads = (unsigned)o->threads,
		.max_body = (size_t)o->max_body,
		.score_rest = (unsigned)o->score_rest,
		.service = s,
		.api = api,
		.metrics = &metrics,
		.log = log,
	};
	struct ex_server *server;
	int sig = 0;

	server = ex_server_start(&cfg, err);
	if (server == NULL)
		return ERR_IO;
	fprintf(stderr, "listening on %s\n", ex_server_url(server));
	while (sigwait(signals, &sig) != 0)
		;
	log_event(log, LOG_LEVEL_INFO, "stopping", "signal=%d", sig);
	ex_server_stop(server);
	return 0;
}

/* From options to the end. */
static int run(const struct ex_options *o, struct log *log, const sigset_t *signals,
	       struct err *err)
{
	struct ex_service_config cfg = service_config(o, log);
	bool embedded = o->cluster[0] != '\0';
	struct ku_config kube = {0};
	struct ex_service *s = NULL;
	struct ex_api *api = NULL;
	int rc = 0;

	if (!embedded)
		rc = read_kube(o, &kube, err);
	if (rc == 0 && o->check_config && !embedded) {
		ku_config_fini(&kube);
		return 0;
	}
	if (rc == 0)
		s = ex_service_new(&cfg, err);
	if (rc == 0 && s == NULL)
		rc = ERR_NOMEM;
	if (rc == 0 && embedded)
		rc = load(s, o, err);
	if (rc == 0 && !embedded)
		rc = start_api(s, o, &kube, log, &api, err);
	if (rc == 0 && !o->check_config)
		rc = serve(s, api, o, log, signals, err);
	ex_api_stop(api);
	if (s != NULL)
		ex_service_close_journal(s);
	ex_service_free(s);
	ku_config_fini(&kube);
	return rc;
}

int main(int argc, char **argv)
{
	struct ex_options o;
	struct err err = ERR_INIT;
	struct log *log = NULL;
	sigset_t signals;
	int rc;

	rc = ex_options_parse(argc, argv, NULL, &o, &err);
	if (rc == 0 && (o.help || o.version))
		return print(o.help ? ex_options_help : put_version);
	if (rc == 0) {
		raise_descriptors();
		take_signals(&signals);
		log = log_new((enum log_level)log_level_parse(o.log_level), NULL, NULL, NULL, NULL);
		rc = run(&o, log, &signals, &err);
	}
	log_free(log);
	if (rc == 0)
		return EXIT_SUCCESS;
	fprintf(stderr, "tessera-extender: %s\n", err.msg);
	return EXIT_USAGE;
}
