/* The daemon's tool: commands of both protocols, questions, clients. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "enforcer/mps_internal.h"

#define OUTPUT_MAX ((off_t)1 << 20) /* the daemon's output is emptied beyond */
#define PID_TEXT 24

/* ---- commands ---- */

/* listed: the output is a list, whose parser finds complaints; it may hold tenants' texts. */
static int judge(struct en_exec_result *out, const char *what, bool listed, int64_t limit_ms,
		 struct err *err)
{
	const char *text = out->err[0] != '\0' && out->out[0] == '\0' ? out->err : out->out;
	size_t len = strcspn(text, "\n");
	int r = 0;

	/* Status 0 says nothing: complaints come on standard output. */
	if (out->left != 0)
		r = err_set(err, ERR_IO,
			    "MPS: %s: no answer, and process %d, which asks, cannot be killed",
			    what, (int)out->left);
	else if (out->timed_out)
		r = err_set(err, ERR_IO, "MPS: %s: no answer within %" PRId64 " ms", what,
			    limit_ms);
	else if (out->status != 0 || (!listed && mps_is_complaint(out->out, strlen(out->out))))
		r = err_set(err, ERR_IO, "MPS: %s: status %d, \"%.*s\"", what, out->status,
			    len < 160 ? (int)len : 160, text);
	if (r != 0)
		en_exec_fini(out);
	return r;
}

int mps_command(struct en_mps *m, const char *const *args, int64_t limit_ms,
		struct en_exec_result *ret, struct err *err)
{
	const char *argv[MPS_ARGS_MAX + 4] = {m->o.control, "-p", "3"};
	struct en_exec x = {.argv = argv, .env = m->env, .limit_ms = limit_ms};
	struct en_exec_result out = {0};
	char what[96];
	size_t n = 3;
	int r;

	while (*args != NULL && n < MPS_ARGS_MAX + 3)
		argv[n++] = *args++;
	argv[n] = NULL;
	r = en_exec_run(&x, &out, err);
	if (r != 0)
		return r;
	snprintf(what, sizeof(what), "%s%s%s", argv[3], n > 4 ? " " : "", n > 4 ? argv[4] : "");
	r = judge(&out, what, n > 4 && strcmp(argv[4], "list") == 0, limit_ms, err);
	if (r == 0)
		*ret = out;
	return r;
}

int mps_command_v2(struct en_mps *m, const char *commands, int64_t limit_ms,
		   struct en_exec_result *ret, struct err *err)
{
	const char *argv[] = {m->o.control, NULL};
	struct en_exec x = {.argv = argv, .env = m->env, .input = commands, .limit_ms = limit_ms};
	struct en_exec_result out = {0};
	char what[96];
	int r = en_exec_run(&x, &out, err);

	if (r != 0)
		return r;
	snprintf(what, sizeof(what), "%.*s", (int)strcspn(commands, "\n"), commands);
	r = judge(&out, what, false, limit_ms, err);
	if (r == 0)
		*ret = out;
	return r;
}

/* ---- questions ---- */

static void keep_servers(struct en_mps *m, const int64_t *pids, size_t count)
{
	pthread_mutex_lock(&m->lock);
	m->server_count = 0;
	for (size_t i = 0; i < count && i < MPS_SERVERS_MAX; i++) {
		if (pids[i] > 0)
			m->servers[m->server_count++] = pids[i];
	}
	pthread_mutex_unlock(&m->lock);
}

static enum en_mps_event judge_status(struct en_mps *m, const char *status)
{
	switch (mps_status_kind(status, m->o.accepted_status)) {
	case EN_MPS_STATUS_READY:
		return EN_MPS_EV_GOOD;
	case EN_MPS_STATUS_WAIT:
		mps_say(m, "mps_not_ready", "the MPS server is starting");
		return EN_MPS_EV_NOT_YET;
	case EN_MPS_STATUS_FAULT:
		mps_say(m, "mps_fault", "the MPS server is in status %s", status);
		return EN_MPS_EV_FAULT;
	default:
		mps_say(m, "mps_status",
			"the MPS server reports status \"%s\", which this version does not know; "
			"name it in accepted_status if it means ready",
			status);
		return EN_MPS_EV_FAULT;
	}
}

static enum en_mps_event ask_v3(struct en_mps *m)
{
	static const char *const args[] = {"server", "list", "--format=csv,noheader", NULL};
	struct en_mps_server rows[MPS_SERVERS_MAX];
	int64_t pids[MPS_SERVERS_MAX] = {0};
	struct en_exec_result out = {0};
	struct err err = ERR_INIT;
	size_t count = 0, kept;
	int r = mps_command(m, args, m->o.ask_limit_ms, &out, &err);

	if (r == 0)
		r = mps_parse_servers(out.out, strlen(out.out), rows, MPS_SERVERS_MAX, &count,
				      &err);
	en_exec_fini(&out);
	if (r != 0) {
		mps_say(m, "mps_silent", "%s", err.msg);
		return EN_MPS_EV_SILENT;
	}
	kept = count < MPS_SERVERS_MAX ? count : MPS_SERVERS_MAX;
	for (size_t i = 0; i < kept; i++)
		pids[i] = rows[i].pid;
	keep_servers(m, pids, kept);
	for (size_t i = 0; i < kept; i++) {
		if (strcmp(rows[i].name, EN_MPS_SERVER) == 0)
			return judge_status(m, rows[i].status);
	}
	/* A server whose GPUs are not there is made, and then disappears. */
	mps_say(m, "mps_no_server", "the MPS server \"" EN_MPS_SERVER "\" is not listed");
	return EN_MPS_EV_FAULT;
}

/* The status of one legacy server; old daemons do not know the question, which is no fault. */
static enum en_mps_event ask_server_v2(struct en_mps *m, int64_t pid)
{
	struct en_exec_result out = {0};
	char command[64], status[32];
	enum en_mps_event ev = EN_MPS_EV_GOOD;

	snprintf(command, sizeof(command), "get_server_status %" PRId64 "\n", pid);
	if (mps_command_v2(m, command, m->o.ask_limit_ms, &out, NULL) != 0)
		return EN_MPS_EV_GOOD;
	if (mps_parse_value(out.out, strlen(out.out), status, sizeof(status), NULL) == 0)
		ev = judge_status(m, status);
	en_exec_fini(&out);
	return ev;
}

static enum en_mps_event ask_v2(struct en_mps *m)
{
	struct en_exec_result out = {0};
	struct err err = ERR_INIT;
	int64_t pids[MPS_SERVERS_MAX];
	size_t count = 0;
	int32_t percent;
	int r = mps_command_v2(m, "get_default_active_thread_percentage\n", m->o.ask_limit_ms, &out,
			       &err);

	if (r == 0)
		r = mps_parse_percent(out.out, strlen(out.out), &percent, &err);
	en_exec_fini(&out);
	if (r == 0)
		r = mps_command_v2(m, "get_server_list\n", m->o.ask_limit_ms, &out, &err);
	if (r == 0)
		r = mps_parse_pids(out.out, strlen(out.out), pids, MPS_SERVERS_MAX, &count, &err);
	en_exec_fini(&out);
	if (r != 0) {
		mps_say(m, "mps_silent", "%s", err.msg);
		return EN_MPS_EV_SILENT;
	}
	keep_servers(m, pids, count);
	for (size_t i = 0; i < count && i < MPS_SERVERS_MAX; i++) {
		enum en_mps_event ev = ask_server_v2(m, pids[i]);

		if (ev != EN_MPS_EV_GOOD)
			return ev;
	}
	return EN_MPS_EV_GOOD; /* also without a server: it comes with the first client */
}

/* In the foreground the daemon writes its log to its output. */
static void cut_output(struct en_mps *m)
{
	char path[EN_PATH_CAP];
	struct stat st;

	if (snprintf(path, sizeof(path), "%s/output", m->o.run_dir) < (int)sizeof(path) &&
	    stat(path, &st) == 0 && st.st_size > OUTPUT_MAX && truncate(path, 0) != 0)
		mps_say(m, "mps_output", "%s cannot be emptied", path);
}

enum en_mps_event mps_ask(struct en_mps *m)
{
	cut_output(m);
	return m->running_legacy ? ask_v2(m) : ask_v3(m);
}

/* ---- clients ---- */

static int clients_v3(struct en_mps *m, int64_t limit_ms, struct en_mps_client *ret, size_t cap,
		      size_t *ret_count, struct err *err)
{
	static const char *const args[] = {"client", "list", "--format=csv,noheader", NULL};
	struct en_exec_result out = {0};
	int r = mps_command(m, args, limit_ms, &out, err);

	if (r == 0)
		r = mps_parse_clients(out.out, strlen(out.out), ret, cap, ret_count, err);
	en_exec_fini(&out);
	return r == ERR_INVALID ? ERR_IO : r;
}

/* Legacy: server by server; the row's server is its pid. */
static int clients_v2(struct en_mps *m, int64_t limit_ms, struct en_mps_client *ret, size_t cap,
		      size_t *ret_count, struct err *err)
{
	int64_t servers[MPS_SERVERS_MAX], pids[256];
	struct en_exec_result out = {0};
	size_t server_count = 0, total = 0;
	int r = mps_command_v2(m, "get_server_list\n", limit_ms, &out, err);

	if (r == 0)
		r = mps_parse_pids(out.out, strlen(out.out), servers, MPS_SERVERS_MAX,
				   &server_count, err);
	en_exec_fini(&out);
	for (size_t i = 0; r == 0 && i < server_count && i < MPS_SERVERS_MAX; i++) {
		char command[64];
		size_t count = 0;

		snprintf(command, sizeof(command), "get_client_list %" PRId64 "\n", servers[i]);
		r = mps_command_v2(m, command, limit_ms, &out, err);
		if (r == 0)
			r = mps_parse_pids(out.out, strlen(out.out), pids, 256, &count, err);
		en_exec_fini(&out);
		for (size_t k = 0; r == 0 && k < count && k < 256; k++, total++) {
			if (total >= cap)
				continue;
			ret[total] = (struct en_mps_client){.pid = pids[k]};
			snprintf(ret[total].server, sizeof(ret[total].server), "%" PRId64,
				 servers[i]);
		}
	}
	if (r == 0)
		*ret_count = total;
	return r == ERR_INVALID ? ERR_IO : r;
}

int mps_list_clients(struct en_mps *m, bool legacy, int64_t limit_ms, struct en_mps_client *ret,
		     size_t cap, size_t *ret_count, struct err *err)
{
	return legacy ? clients_v2(m, limit_ms, ret, cap, ret_count, err)
		      : clients_v3(m, limit_ms, ret, cap, ret_count, err);
}

static int list_clients(struct en_mps *m, int64_t limit_ms, struct en_mps_client *ret, size_t cap,
			size_t *ret_count, struct err *err)
{
	struct en_mps_status st;

	en_mps_get_status(m, &st);
	if (st.pid == 0)
		return err_set(err, ERR_CONFLICT, "MPS does not run: %s", st.why);
	return mps_list_clients(m, st.legacy, limit_ms, ret, cap, ret_count, err);
}

int en_mps_clients(struct en_mps *m, struct en_mps_client *ret, size_t cap, size_t *ret_count,
		   struct err *err)
{
	return list_clients(m, m->o.command_limit_ms, ret, cap, ret_count, err);
}

/* A client whose process is gone but which the daemon still lists, twice in a row: the mark of a daemon
 * that hangs while it says that all is well. */
bool mps_look_at_clients(struct en_mps *m)
{
	struct en_mps_client *rows = calloc(MPS_ROWS_MAX, sizeof(*rows));
	size_t count = 0, ghosts = 0;
	int64_t ghost = 0;
	bool suspect, idle;
	struct err err = ERR_INIT;

	if (rows == NULL)
		return false;
	if (list_clients(m, m->o.ask_limit_ms, rows, MPS_ROWS_MAX, &count, &err) != 0) {
		mps_say(m, "mps_clients", "%s", err.msg);
		free(rows);
		return false;
	}
	for (size_t i = 0; i < count && i < MPS_ROWS_MAX; i++) {
		if (mps_alive(m, rows[i].pid))
			continue;
		ghosts++;
		ghost = rows[i].pid;
	}
	free(rows);
	m->ghost_looks = ghosts > 0 ? m->ghost_looks + 1 : 0;
	suspect = m->ghost_looks >= 2;
	pthread_mutex_lock(&m->lock);
	m->clients = count;
	m->ghosts = ghosts;
	if (suspect)
		m->recycle_when_idle = true;
	idle = m->recycle_when_idle && count == ghosts;
	pthread_mutex_unlock(&m->lock);
	if (suspect && m->ghost_looks == 2)
		mps_say(m, "mps_ghost",
			"MPS lists client %" PRId64
			", whose process is gone; it will be started anew "
			"when no client is left",
			ghost);
	return idle;
}

/* ---- drain ---- */

static bool contains(const uint32_t *pids, size_t count, int64_t pid)
{
	for (size_t i = 0; i < count; i++) {
		if (pids[i] == pid)
			return true;
	}
	return false;
}

/* What is listed no more is forgotten: its number may come again. */
static void forget_ended(struct en_mps *m, const struct en_mps_client *rows, size_t count)
{
	pthread_mutex_lock(&m->lock);
	for (size_t i = 0; i < MPS_ENDED_MAX; i++) {
		bool listed = false;

		for (size_t k = 0; k < count && m->ended[i].pid != 0 && !listed; k++)
			listed = rows[k].pid == m->ended[i].pid &&
				 strtoll(rows[k].server, NULL, 10) == m->ended[i].server;
		if (!listed)
			m->ended[i].pid = 0;
	}
	pthread_mutex_unlock(&m->lock);
}

static bool was_ended(struct en_mps *m, const struct en_mps_client *c)
{
	bool found = false;

	pthread_mutex_lock(&m->lock);
	for (size_t i = 0; i < MPS_ENDED_MAX && !found; i++)
		found = m->ended[i].pid == c->pid &&
			m->ended[i].server == strtoll(c->server, NULL, 10);
	pthread_mutex_unlock(&m->lock);
	return found;
}

static void note_ended(struct en_mps *m, const struct en_mps_client *c)
{
	pthread_mutex_lock(&m->lock);
	m->ended[m->ended_next].pid = c->pid;
	m->ended[m->ended_next].server = strtoll(c->server, NULL, 10);
	m->ended_next = (m->ended_next + 1) % MPS_ENDED_MAX;
	pthread_mutex_unlock(&m->lock);
}

/* The legacy tool's last line is a code, "0" when the client's work has ended; the client stays listed until
 * its process does (measured, driver 580). */
static int terminate_v2(struct en_mps *m, const struct en_mps_client *c, int64_t limit_ms,
			struct err *err)
{
	char command[128];
	struct en_exec_result out = {0};
	size_t len;
	int r;

	if (was_ended(m, c))
		return 0;
	snprintf(command, sizeof(command), "terminate_client %s %" PRId64 "\n", c->server, c->pid);
	r = mps_command_v2(m, command, limit_ms, &out, err);
	if (r != 0)
		return r;
	len = strlen(out.out);
	while (len > 0 && out.out[len - 1] == '\n')
		out.out[--len] = '\0';
	if (len > 0 && out.out[len - 1] == '0' && (len == 1 || out.out[len - 2] == '\n'))
		note_ended(m, c);
	else
		r = err_set(err, ERR_IO, "MPS: terminate_client %" PRId64 ": \"%.*s\"", c->pid,
			    (int)strcspn(out.out, "\n"), out.out);
	en_exec_fini(&out);
	return r;
}

static int terminate_v3(struct en_mps *m, const struct en_mps_client *c, int64_t limit_ms,
			struct err *err)
{
	char pid[PID_TEXT];
	const char *const args[] = {"client", "terminate", pid, NULL};
	struct en_exec_result out = {0};
	int r;

	snprintf(pid, sizeof(pid), "%" PRId64, c->pid);
	r = mps_command(m, args, limit_ms, &out, err);
	en_exec_fini(&out);
	return r;
}

/* Terminates those that are clients; *ret_left is how many are left in use. */
static int drain_once(struct en_mps *m, const uint32_t *pids, size_t count, int64_t until_ms,
		      bool only_look, size_t *ret_left, struct err *err)
{
	struct en_mps_client *rows = calloc(MPS_ROWS_MAX, sizeof(*rows));
	struct en_mps_status st;
	int64_t left_ms = until_ms - mps_now(m);
	size_t total = 0;
	int r;

	*ret_left = 0;
	if (rows == NULL)
		return err_set(err, ERR_NOMEM, "out of memory");
	en_mps_get_status(m, &st);
	r = list_clients(m, left_ms > 1 ? left_ms : 1, rows, MPS_ROWS_MAX, &total, err);
	if (total > MPS_ROWS_MAX)
		total = MPS_ROWS_MAX;
	if (r == 0)
		forget_ended(m, rows, total);
	for (size_t i = 0; r == 0 && i < total; i++) {
		if (!contains(pids, count, rows[i].pid) || (only_look && was_ended(m, &rows[i])))
			continue;
		++*ret_left;
		left_ms = until_ms - mps_now(m);
		left_ms = left_ms > 1 ? left_ms : 1;
		if (!only_look)
			r = st.legacy ? terminate_v2(m, &rows[i], left_ms, err)
				      : terminate_v3(m, &rows[i], left_ms, err);
	}
	free(rows);
	return r;
}

int en_mps_drain(struct en_mps *m, const uint32_t *pids, size_t count, int64_t limit_ms,
		 struct err *err)
{
	int64_t until_ms = mps_now(m) + limit_ms;
	size_t left = 0;
	int r = count == 0 ? 0 : drain_once(m, pids, count, until_ms, false, &left, err);

	if (r == ERR_CONFLICT) /* no daemon, no clients */
		r = 0;
	else if (r == 0 && left > 0) /* what it says it did is looked at */
		r = drain_once(m, pids, count, until_ms, true, &left, err);
	if (r == 0 && left > 0)
		r = err_set(err, ERR_IO, "MPS still lists %zu clients of the container", left);
	pthread_mutex_lock(&m->lock);
	m->drains++;
	if (r != 0) {
		m->drain_failures++;
		m->recycle_when_idle = true;
	}
	pthread_mutex_unlock(&m->lock);
	return r;
}
