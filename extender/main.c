/* tessera-extender: reads the cluster, replays the journal, serves until it is told to stop. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

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

static int serve(struct ex_service *s, const struct ex_options *o, struct log *log,
		 const sigset_t *signals, struct err *err)
{
	static struct ex_metrics metrics;
	struct ex_server_config cfg = {
		.listen = o->listen,
		.threads = (unsigned)o->threads,
		.max_body = (size_t)o->max_body,
		.score_rest = (unsigned)o->score_rest,
		.service = s,
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

int main(int argc, char **argv)
{
	struct ex_service_config cfg;
	struct ex_options o;
	struct err err = ERR_INIT;
	struct ex_service *s = NULL;
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
		cfg = service_config(&o, log);
		s = ex_service_new(&cfg, &err);
		rc = s != NULL ? load(s, &o, &err) : ERR_NOMEM;
	}
	if (rc == 0)
		rc = serve(s, &o, log, &signals, &err);
	if (s != NULL)
		ex_service_close_journal(s);
	ex_service_free(s);
	log_free(log);
	if (rc == 0)
		return EXIT_SUCCESS;
	fprintf(stderr, "tessera-extender: %s\n", err.msg);
	return EXIT_USAGE;
}
