/* tessera-extender: a cluster from a file or an API server, served until it is told to stop. */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/listen.h"
#include "extender/api.h"
#include "extender/options.h"
#include "extender/server.h"

#define EXIT_USAGE 2     /* wrong options or files */
#define DESCRIPTORS 1024 /* 300 binds, 300 requests, the API's connections, the files */

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

/* 300 binds at once are 300 descriptors; the usual soft limit of 1,024 is near. With fewer, connections
 * wait in the kernel and the scheduler's calls run out of time. */
static void raise_descriptors(struct log *log)
{
	uint64_t limit = listen_more_files();

	if (limit < DESCRIPTORS)
		log_event(log, LOG_LEVEL_WARN, "few-descriptors",
			  "limit=%" PRIu64 " wanted=%d remedy=\"raise the limit of open files\"",
			  limit, DESCRIPTORS);
}

/* SIGHUP waits from the start on until there is something to read again. */
static void hold_hangup(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGHUP);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
}

/* The signals that end the program are waited for, in every thread's place: before the first thread, and
 * after the files, for reading one (standard input, a pipe) may take for ever. */
static void take_signals(sigset_t *set)
{
	sigemptyset(set);
	sigaddset(set, SIGINT);
	sigaddset(set, SIGTERM);
	sigaddset(set, SIGHUP);
	pthread_sigmask(SIG_BLOCK, set, NULL);
}

static struct ex_service_config service_config(const struct ex_options *o, struct log *log)
{
	return (struct ex_service_config){
		.state =
			{
				.reserve_mib = (int32_t)o->reserve_mib,
				.clients_max = (int32_t)o->clients_max,
				.overcommit_permille = (int32_t)o->overcommit_permille,
				.mig_fixed = !o->mig_switch,
			},
		.contract = {.prefix = o->prefix,
			     .hami = o->hami,
			     .mig_isolation = o->mig_isolation,
			     .cdi = o->cdi},
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

static int load_journal(struct ex_service *s, const struct ex_options *o, struct err *err)
{
	int rc;

	rc = ex_service_start(s, err);
	if (rc < 0 || o->journal[0] == '\0')
		return rc;
	rc = o->check_config ? ex_service_check_journal(s, o->journal, err)
			     : ex_service_open_journal(s, o->journal, o->journal_sync, err);
	return rc < 0 ? err_prefix(err, rc, "--journal") : 0;
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
	int rc;

	if (o->in_cluster)
		rc = ku_config_in_cluster(NULL, ret, err);
	else
		rc = ku_config_load(o->kubeconfig, o->context[0] != '\0' ? o->context : NULL, ret,
				    err);
	return rc < 0 ? err_prefix(err, rc, o->in_cluster ? "--in-cluster" : "--kubeconfig") : 0;
}

static int start_api(struct ex_service *s, const struct ex_options *o, const struct ku_config *kube,
		     struct log *log, struct ex_api **ret, struct err *err)
{
	char identity[EX_IDENTITY_MAX + 1];
	struct ex_api_config cfg = {
		.kube = kube,
		.service = s,
		.log = log,
		.leader_elect = o->leader_elect,
		.lease_ns = o->lease_namespace[0] != '\0' ? o->lease_namespace
			    : o->in_cluster               ? kube->ns
							  : "kube-system",
		.lease_name = o->lease_name,
		.identity = identity,
		.lease_ms = o->lease_s * 1000,
		.renew_ms = o->renew_s * 1000,
		.retry_ms = o->retry_s * 1000,
		.bind_ms = o->bind_ms,
		.silence_ms = o->silence_s * 1000,
		.totals = o->node_totals,
		.instance = identity,
	};

	make_identity(o, identity, sizeof(identity));
	cfg.seed = hash_str(identity, 0);
	return ex_api_start(&cfg, ret, err);
}

/* ---- serving ---- */

struct program {
	int argc;
	char **argv;
	struct ex_options o;
	struct log *log;
	struct ex_tls *tls;
	sigset_t signals;
	bool reading; /* options and files; afterwards it is the world that fails */
};

static void on_difference(void *ctx, const char *name, bool live)
{
	log_event(ctx, live ? LOG_LEVEL_INFO : LOG_LEVEL_WARN, "option-changed",
		  "option=%s effect=%s", name, live ? "now" : "\"after a restart\"");
}

/* SIGHUP: what can change while serving does; on any error nothing changes. */
static void reload(struct program *p)
{
	struct ex_options o;
	struct err err = ERR_INIT;
	char quoted[600];
	int rc;

	rc = ex_options_parse(p->argc, p->argv, NULL, &o, &err);
	if (rc == 0) {
		ex_options_compare(&p->o, &o, on_difference, p->log);
		log_set_level(p->log, (enum log_level)log_level_parse(o.log_level));
		ex_options_fini(&o);
		if (p->tls != NULL)
			rc = ex_tls_reload(p->tls, &err);
	}
	if (rc < 0)
		log_event(p->log, LOG_LEVEL_ERROR, "reload-failed", "reason=%s",
			  log_quote(err.msg, quoted, sizeof(quoted)));
	else
		log_event(p->log, LOG_LEVEL_INFO, "reloaded", "signal=%d", SIGHUP);
}

static void wait_for_end(struct program *p)
{
	int sig = 0;

	while (sigwait(&p->signals, &sig) != 0 || sig == SIGHUP) {
		if (sig == SIGHUP)
			reload(p);
	}
	log_event(p->log, LOG_LEVEL_INFO, "stopping", "signal=%d", sig);
}

/* What an API server holds is not known yet: nodes-listed and pods-listed say it. */
static void say_started(struct program *p, struct ex_service *s, const char *url)
{
	struct ex_service_counts counts;
	struct ex_survey f;

	if (p->o.cluster[0] == '\0') {
		log_event(p->log, LOG_LEVEL_INFO, "started", "policy=%s url=%s source=api-server",
			  p->o.policy, url);
		return;
	}
	ex_service_survey(s, &f);
	ex_service_counts(s, &counts);
	log_event(p->log, LOG_LEVEL_INFO, "started",
		  "nodes=%zu gpus=%zu pods=%zu pending=%zu policy=%s url=%s", f.nodes, f.gpus,
		  f.pods, counts.pods_cached, p->o.policy, url);
}

static int serve(struct program *p, struct ex_service *s, struct ex_api *api, struct err *err)
{
	const struct ex_options *o = &p->o;
	static struct ex_metrics metrics;
	struct ex_server_config cfg = {
		.listen = o->listen,
		.threads = (unsigned)o->threads,
		.max_body = (size_t)o->max_body,
		.score_rest = (unsigned)o->score_rest,
		.service = s,
		.api = api,
		.tls = p->tls,
		.scheduler = o->scheduler_name,
		.set_scheduler = (enum ex_set_scheduler)ex_options_set_scheduler(o),
		.refuse_privileged = strcmp(o->privileged, "refuse") == 0,
		.metrics = &metrics,
		.log = p->log,
	};
	struct ex_server *server;
	int rc = ex_server_start(&cfg, &server, err);

	if (rc < 0)
		return rc;
	say_started(p, s, ex_server_url(server));
	fprintf(stderr, "listening on %s\n", ex_server_url(server));
	wait_for_end(p);
	ex_server_stop(server);
	return 0;
}

static int open_tls(struct program *p, struct err *err)
{
	const struct ex_options *o = &p->o;

	if (o->tls_cert[0] == '\0')
		return 0;
	p->tls = ex_tls_new(o->tls_cert, o->tls_key,
			    o->tls_client_ca[0] != '\0' ? o->tls_client_ca : NULL, err);
	return p->tls != NULL ? 0 : ERR_INVALID;
}

/* From options to the end. With --check-config nothing is served and nobody is asked. */
static int run(struct program *p, struct err *err)
{
	struct ex_service_config cfg = service_config(&p->o, p->log);
	bool embedded = p->o.cluster[0] != '\0', check = p->o.check_config;
	struct ku_config kube = {0};
	struct ex_service *s = NULL;
	struct ex_api *api = NULL;
	int rc;

	rc = open_tls(p, err);
	if (rc == 0 && !embedded)
		rc = read_kube(&p->o, &kube, err);
	if (rc == 0) {
		s = ex_service_new(&cfg, err);
		rc = s != NULL ? 0 : ERR_NOMEM;
	}
	if (rc == 0 && embedded && (rc = ex_service_load_file(s, p->o.cluster, err)) < 0)
		err_prefix(err, rc, "--cluster");
	take_signals(&p->signals);
	if (rc == 0 && embedded)
		rc = load_journal(s, &p->o, err);
	p->reading = rc < 0;
	if (rc == 0 && check && (rc = listen_check(p->o.listen, err)) < 0)
		err_prefix(err, rc, "--listen");
	if (rc == 0 && !embedded && !check)
		rc = start_api(s, &p->o, &kube, p->log, &api, err);
	if (rc == 0 && !check)
		rc = serve(p, s, api, err);
	ex_api_stop(api);
	if (s != NULL)
		ex_service_close_journal(s);
	ex_service_free(s);
	ku_config_fini(&kube);
	ex_tls_free(p->tls);
	return rc;
}

int main(int argc, char **argv)
{
	struct program p = {.argc = argc, .argv = argv, .reading = true};
	struct err err = ERR_INIT;
	int rc;

	rc = ex_options_parse(argc, argv, NULL, &p.o, &err);
	if (rc == 0 && (p.o.help || p.o.version))
		return print(p.o.help ? ex_options_help : put_version);
	if (rc == 0) {
		hold_hangup();
		p.log = log_new((enum log_level)log_level_parse(p.o.log_level), NULL, NULL, NULL,
				NULL);
		raise_descriptors(p.log);
		rc = run(&p, &err);
		if (rc == 0 && p.o.check_config)
			puts("the configuration is good");
		ex_options_fini(&p.o);
	}
	log_free(p.log);
	if (rc == 0)
		return EXIT_SUCCESS;
	fprintf(stderr, "tessera-extender: %s\n", err.msg);
	/* A file that cannot be read is wrong input, a port that is taken is not. */
	return p.reading && rc == ERR_IO ? EXIT_USAGE : err_exit_status(rc);
}
