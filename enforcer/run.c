/* See run_internal.h for the parts. */
#include "enforcer/run.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/listen.h"
#include "enforcer/probe_exec.h"
#include "enforcer/run_internal.h"

#define FLUSH_MS 3000 /* of the last condition, at the end */
#define TICK_MS 1000
#define SAVE_MS 300000

int64_t run_now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

int64_t run_wall_s(void)
{
	return (int64_t)time(NULL);
}

void run_wake(const struct agent *a)
{
	const uint64_t one = 1;

	(void)!write(a->wake_fd, &one, sizeof(one));
}

const char *run_given(const char *option)
{
	return option[0] != '\0' ? option : NULL;
}

/* ---- signals ---- */

static int signals_take(struct agent *a, struct err *err)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGHUP);
	pthread_sigmask(SIG_BLOCK, &set, NULL); /* before any thread is made */
	(void)signal(SIGPIPE, SIG_IGN);
	a->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	a->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	return a->signal_fd < 0 || a->wake_fd < 0
		       ? err_set(err, ERR_IO, "signals: %s", strerror(errno))
		       : 0;
}

/* true: to end. SIGHUP reads the file of allocations again; a bad one changes nothing. */
static bool signals_read(struct agent *a)
{
	struct signalfd_siginfo info;
	char quoted[ERR_MSG_CAP];
	bool end = false;

	while (read(a->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
		struct err err = ERR_INIT;

		if (info.ssi_signo != SIGHUP) {
			end = true;
			continue;
		}
		a->static_said = 0; /* all of it is said again */
		if (run_static_load(a, &err) != 0)
			log_event(a->log, LOG_LEVEL_ERROR, "static-not-loaded", "reason=%s",
				  log_quote(err.msg, quoted, sizeof(quoted)));
		else
			log_event(a->log, LOG_LEVEL_INFO, "static-loaded", "file=%s",
				  a->o.static_file);
		atomic_store(&a->pods_changed, true);
	}
	return end;
}

/* ---- the loop ---- */

struct due {
	int64_t probe, reconcile, save;
};

/* Which containers there are is known now: MPS namespaces that are none of theirs may go. */
static void claim(struct agent *a)
{
	if (a->mps == NULL || !a->unclaimed || !en_plugin_claim(a->plugin))
		return;
	a->unclaimed = false;
	en_mps_namespaces_claimed(a->mps);
}

static void save(struct agent *a)
{
	char quoted[ERR_MSG_CAP];
	struct err err = ERR_INIT;

	if (a->usage_path[0] != '\0' && en_usage_save(a->usage, a->usage_path, &err) != 0)
		log_event(a->log, LOG_LEVEL_WARN, "usage-not-saved", "reason=%s",
			  log_quote(err.msg, quoted, sizeof(quoted)));
}

static void check(struct agent *a)
{
	en_pulse_begin(a->pulse, "the doctor's checks");
	run_doctor(a);
	run_publish(a, false);
}

/* All that is looked after each minute, and after each time that the runtime told what exists. */
static void reconcile(struct agent *a, bool synchronized)
{
	en_pulse_begin(a->pulse, "changed allocations");
	run_pods_apply(a);
	if (!a->let_go) {
		en_pulse_begin(a->pulse, "the limits of running containers");
		if (synchronized)
			(void)en_plugin_sweep(a->plugin);
		en_plugin_reconcile(a->plugin);
	}
	run_pods_sweep(a);
	check(a);
}

/* The driver's tools that were killed and hang in it: told of when there are more. */
static void tools_look(struct agent *a)
{
	struct en_exec_left left;

	en_exec_look(&left);
	if (left.count > a->tools_left)
		log_event(a->log, LOG_LEVEL_ERROR, "tool-hangs",
			  "program=%s pid=%d processes=%zu reason=\"killed, and does not end\"",
			  left.name, (int)left.pid, left.count);
	a->tools_left = left.count;
}

static void step(struct agent *a, struct due *due)
{
	/* What runs is known when the runtime has told and the GPUs that it speaks of are known. */
	bool synchronized = !en_plugin_waits(a->plugin) && atomic_exchange(&a->synchronized, false);
	int64_t now = run_now_ms();
	struct en_plugin_stats stats;
	bool probe;

	if (synchronized)
		a->ever_synchronized = true;
	probe = synchronized || now >= due->probe || atomic_exchange(&a->look_again, false);
	tools_look(a);
	run_upgrade_look(a);
	en_pulse_begin(a->pulse, probe ? "a look at the hardware" : "the parts' state");
	run_look(a, probe);
	en_pulse_begin(a->pulse, "idle MIG instances");
	if (run_mig_sweep(a)) {
		en_pulse_begin(a->pulse, "a look at the hardware");
		run_look(a, true);
	}
	if (probe || atomic_load(&a->pods_changed))
		run_static_check(a);
	if (probe) {
		en_pulse_begin(a->pulse, "measuring");
		run_measure(a);
		due->probe = now + a->o.probe_s * 1000;
	}
	a->unclaimed |= synchronized;
	claim(a);
	en_plugin_get_stats(a->plugin, &stats);
	if (synchronized || a->limits_lost || now >= due->reconcile) {
		a->limits_lost = false;
		reconcile(a, synchronized);
		due->reconcile = now + a->o.reconcile_s * 1000;
	} else if (a->check_again) {
		check(a);
	}
	en_pulse_begin(a->pulse, "changed allocations");
	if (atomic_exchange(&a->pods_changed, false) || stats.given != a->given_seen)
		run_pods_apply(a);
	en_pulse_begin(a->pulse, "containers that end");
	run_drain_due(a);
	run_stop_due(a);
	if (now >= due->save) {
		en_pulse_begin(a->pulse, "the file of peaks");
		save(a);
		due->save = now + SAVE_MS;
	}
}

/* Until a signal, or until the runtime that started us is gone. */
static void loop(struct agent *a)
{
	int64_t now = run_now_ms();
	struct due due = {now + a->o.probe_s * 1000, now, now + SAVE_MS};

	for (;;) {
		struct pollfd p[2] = {{.fd = a->signal_fd, .events = POLLIN},
				      {.fd = a->wake_fd, .events = POLLIN}};
		struct en_nri_figures nri;
		uint64_t count;

		(void)poll(p, 2, TICK_MS);
		if (signals_read(a))
			return;
		(void)!read(a->wake_fd, &count, sizeof(count));
		en_nri_get_figures(a->nri, &nri);
		if (nri.ended)
			return;
		step(a, &due);
		en_pulse_end(a->pulse);
	}
}

/* Containers go on running, and so does MPS: the next agent takes both over. */
static void end(struct agent *a)
{
	en_http_stop(a->http);
	if (a->publisher != NULL && a->prober != NULL) {
		run_publish(a, true);
		(void)en_publisher_flush(a->publisher, FLUSH_MS);
	}
	en_nri_stop(a->nri);
	en_hook_server_stop(a->hooks);
	en_exits_free(a->exits);
	en_publisher_free(a->publisher);
	en_pods_stop(a->pods);
	ku_events_free(a->events);
	ku_client_free(a->client);
	en_prober_free(a->prober);
	en_plugin_free(a->plugin);
	en_mig_free(a->mig);
	if (a->mps != NULL) {
		en_mps_thread_stop(a->mps);
		en_mps_free(a->mps);
	}
	if (a->usage != NULL)
		save(a);
	en_usage_free(a->usage);
	en_measurer_free(a->measurer);
	en_limits_free(a->limits);
	en_static_free(a->statics);
	run_stops_free(a);
	free(a->probe);
	free(a->spare);
	free(a->report);
	if (a->lock_fd >= 0)
		close(a->lock_fd);
}

static int print_help(void)
{
	struct buf b = BUF_INIT;
	bool ok;

	en_run_options_help(&b);
	ok = buf_ok(&b) && file_write_all(STDOUT_FILENO, b.data, b.len) == 0;
	buf_fini(&b);
	return ok ? 0 : 1;
}

int en_run_main(int argc, char *const *argv)
{
	static struct agent a;
	struct err err = ERR_INIT;
	int rc;

	a.lock_fd = -1;
	a.proc = "/proc";
	if (en_run_options_parse(argc, argv, NULL, &a.o, &err) != 0) {
		fprintf(stderr, "tessera-enforcer run: %s\n", err.msg);
		return 2;
	}
	if (a.o.help)
		return print_help();
	pthread_mutex_init(&a.lock, NULL);
	a.started_ms = run_now_ms();
	a.log = log_new((enum log_level)log_level_parse(a.o.log_level), NULL, NULL, NULL, NULL);
	(void)listen_more_files(); /* one for each container, each connection and more; without any no hook is answered */
	rc = signals_take(&a, &err);
	if (rc == 0)
		rc = run_start(&a, &err);
	if (rc == 0) {
		log_event(a.log, LOG_LEVEL_INFO, "started", "node=%s gpus=%zu ms=%lld", a.o.node,
			  a.probe->gpu_count, (long long)(run_now_ms() - a.started_ms));
		loop(&a);
	} else {
		fprintf(stderr, "tessera-enforcer run: %s\n", err.msg);
	}
	end(&a);
	log_free(a.log);
	pthread_mutex_destroy(&a.lock);
	return err_exit_status(rc);
}
