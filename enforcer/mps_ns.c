/* Namespaces of containers: what was promised is kept in a table, and the daemon is made to agree with
 * it. Exit statuses are not believed: the list decides. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "enforcer/mps_internal.h"

#define SERVER_FLAG "--server=shared" /* of EN_MPS_SERVER */

void en_mps_namespace_name(const char *container_id, char ret[EN_MPS_NAME_CAP])
{
	uint64_t a = hash_str(container_id, 1), b = hash_str(container_id, 2);
	char part[17];
	size_t n = 0;

	for (const char *c = container_id; *c != '\0' && n < 16; c++) {
		if ((*c >= 'a' && *c <= 'z') || (*c >= '0' && *c <= '9'))
			part[n++] = *c;
		else if (*c >= 'A' && *c <= 'Z')
			part[n++] = (char)(*c - 'A' + 'a');
		else
			part[n++] = '_';
	}
	part[n] = '\0';
	snprintf(ret, EN_MPS_NAME_CAP, MPS_NS_PREFIX "%s_%016llx%04x", part, (unsigned long long)a,
		 (unsigned)(b & 0xFFFF));
}

/* ---- the daemon's side ---- */

static int list(struct en_mps *m, struct en_mps_namespace *ret, size_t cap, size_t *ret_count,
		struct err *err)
{
	static const char *const args[] = {"namespace", "list", SERVER_FLAG,
					   "--format=csv,noheader", NULL};
	struct en_exec_result out = {0};
	int r = mps_command(m, args, m->o.command_limit_ms, &out, err);

	if (r == 0)
		r = mps_parse_namespaces(out.out, strlen(out.out), ret, cap, ret_count, err);
	en_exec_fini(&out);
	return r == ERR_INVALID ? ERR_IO : r;
}

static const struct en_mps_namespace *find_row(const struct en_mps_namespace *rows, size_t count,
					       const char *name)
{
	for (size_t i = 0; i < count; i++) {
		if (strcmp(rows[i].name, name) == 0 && strcmp(rows[i].server, EN_MPS_SERVER) == 0)
			return &rows[i];
	}
	return NULL;
}

/* The directory as the daemon tells it; the field's spelling differs between sources. */
static int get_dir(struct en_mps *m, const char *name, char ret[EN_MPS_DIR_CAP], struct err *err)
{
	static const char *const fields[] = {"pipe-directory", "pipe_directory"};
	int r = 0;

	for (size_t i = 0; i < 2; i++) {
		const char *const args[] = {"namespace",   "get",     name,
					    EN_MPS_SERVER, fields[i], NULL};
		struct en_exec_result out = {0};

		r = mps_command(m, args, m->o.command_limit_ms, &out, err);
		if (r == 0)
			r = mps_parse_value(out.out, strlen(out.out), ret, EN_MPS_DIR_CAP, err);
		en_exec_fini(&out);
		if (r == 0 && ret[0] == '/')
			return 0;
	}
	return r != 0 ? ERR_IO : err_set(err, ERR_IO, "MPS tells no directory for %s", name);
}

static int check_dir(const struct en_mps *m, const char *dir, struct err *err)
{
	size_t root = strlen(m->o.pipe_dir);

	if (strncmp(dir, m->o.pipe_dir, root) != 0 || dir[root] != '/' ||
	    strstr(dir, "/../") != NULL)
		return err_set(err, ERR_IO, "MPS tells directory %s, which is not below %s", dir,
			       m->o.pipe_dir);
	if (strlen(dir) > EN_MPS_PIPE_MAX)
		return err_set(err, ERR_IO, "MPS directory %s is too long for its socket", dir);
	return 0;
}

/* create, set, and look. ERR_CONFLICT: it exists with another ceiling that cannot be changed. */
static int make(struct en_mps *m, const char *name, int percent, char ret_dir[EN_MPS_DIR_CAP],
		struct err *err)
{
	struct en_mps_namespace *rows = calloc(MPS_ROWS_MAX, sizeof(*rows));
	const struct en_mps_namespace *row = NULL;
	struct en_exec_result out = {0};
	struct err why = ERR_INIT;
	char ceiling[48];
	const char *const create_args[] = {"namespace", "create", name, SERVER_FLAG, NULL};
	const char *const set_args[] = {"namespace", "set", name, SERVER_FLAG, ceiling, NULL};
	size_t count = 0;
	int r;

	if (rows == NULL)
		return err_set(err, ERR_NOMEM, "out of memory");
	snprintf(ceiling, sizeof(ceiling), "--active-thread-percentage=%d", percent);
	/* It may exist already; the list tells. The last complaint explains what is missing then. */
	(void)mps_command(m, create_args, m->o.command_limit_ms, &out, &why);
	en_exec_fini(&out);
	(void)mps_command(m, set_args, m->o.command_limit_ms, &out, &why);
	en_exec_fini(&out);
	r = list(m, rows, MPS_ROWS_MAX, &count, err);
	if (r == 0) {
		row = find_row(rows, count < MPS_ROWS_MAX ? count : MPS_ROWS_MAX, name);
		if (row == NULL)
			r = err_set(err, ERR_IO, "MPS namespace %s was not made: %s", name,
				    why.msg);
		else if (row->centipercent != percent * 100)
			r = err_set(err, ERR_CONFLICT,
				    "MPS namespace %s has a ceiling of %d hundredths, not %d%%: %s",
				    name, row->centipercent, percent, why.msg);
		else if (row->dir[0] != '\0')
			memcpy(ret_dir, row->dir, EN_MPS_DIR_CAP);
		else
			r = get_dir(m, name, ret_dir, err);
	}
	free(rows);
	return r == 0 ? check_dir(m, ret_dir, err) : r;
}

/* Whether it worked, the next list tells. */
static void remove_ns(struct en_mps *m, const char *name)
{
	const char *const args[] = {"namespace", "delete", name, SERVER_FLAG, NULL};
	struct en_exec_result out = {0};

	(void)mps_command(m, args, m->o.command_limit_ms, &out, NULL);
	en_exec_fini(&out);
}

/* ---- the table ---- */

static void free_entry(struct mps_ns *e)
{
	free(e->id);
	free(e);
}

/* Under the lock. */
static struct mps_ns *find_entry(struct en_mps *m, const char *id)
{
	struct mps_ns *e = NULL;

	HASH_FIND_STR(m->ns, id, e);
	return e;
}

static void drop_entry(struct en_mps *m, struct mps_ns *e)
{
	HASH_DEL(m->ns, e); /* NOLINT(clang-analyzer-unix.Malloc): uthash is right */
	free_entry(e);
}

static struct mps_ns *add_entry(struct en_mps *m, const char *id, int percent)
{
	struct mps_ns *e = calloc(1, sizeof(*e));

	if (e == NULL || (e->id = strdup(id)) == NULL) {
		free(e);
		return NULL;
	}
	e->percent = percent;
	en_mps_namespace_name(id, e->name);
	HASH_ADD_KEYPTR(hh, m->ns, e->id, strlen(e->id), e);
	if (!HASH_ADDED(e, hh)) {
		free_entry(e);
		return NULL;
	}
	return e;
}

void mps_ns_free_all(struct en_mps *m)
{
	struct mps_ns *e, *next;

	HASH_ITER(hh, m->ns, e, next)
		drop_entry(m, e);
}

/* Under the lock: claims the entry for this thread. *ret_done: it is made, nothing is to be done. */
static int claim(struct en_mps *m, const char *id, int percent, struct mps_ns **ret, bool *ret_done,
		 struct err *err)
{
	char name[EN_MPS_NAME_CAP];
	struct mps_ns *e = find_entry(m, id);

	*ret_done = false;
	en_mps_namespace_name(id, name);
	if (!en_mps_core_usable(&m->core))
		return err_set(err, ERR_CONFLICT, "MPS is not ready: %s",
			       m->why[0] != '\0' ? m->why : "it does not run");
	if (m->running_legacy)
		return err_set(err, ERR_CONFLICT, "legacy MPS has no namespaces");
	while ((e != NULL && e->making) || strcmp(m->removing, name) == 0) {
		pthread_cond_wait(&m->changed, &m->lock);
		e = find_entry(m, id);
	}
	if (e != NULL && e->percent != percent && !e->dropping)
		return err_set(err, ERR_CONFLICT,
			       "the container has an MPS namespace with %d%%, not %d%%: that takes "
			       "a restart of the container",
			       e->percent, percent);
	if (e == NULL)
		e = add_entry(m, id, percent);
	if (e == NULL)
		return err_set(err, ERR_NOMEM, "out of memory");
	*ret_done = e->generation == m->core.readies && e->dir[0] != '\0' && !e->dropping;
	e->percent = percent;
	e->dropping = false;
	e->making = !*ret_done;
	*ret = e;
	return 0;
}

/* Under the lock, when the daemon was asked. What was to be for a new container goes; what a container has that runs
 * stays wanted, and the sweep looks whether it is right. */
static void asked(struct en_mps *m, struct mps_ns *e, uint64_t generation, bool ok, bool keep,
		  const char dir[EN_MPS_DIR_CAP])
{
	e->making = false;
	e->generation = ok || keep ? generation : 0;
	e->bad = !ok && keep;
	memcpy(e->dir, dir, EN_MPS_DIR_CAP);
	if (ok)
		return;
	e->dropping = !keep;
	m->sweep_now = true;
}

static int make_or_keep(struct en_mps *m, const char *container_id, int percent, bool keep,
			char ret_dir[EN_PATH_CAP], struct err *err)
{
	char name[EN_MPS_NAME_CAP], dir[EN_MPS_DIR_CAP] = "";
	uint64_t generation;
	struct mps_ns *e = NULL;
	bool done;
	int r;

	if (percent < 1 || percent > 100)
		return err_set(err, ERR_RANGE, "a compute share of %d%% is not possible", percent);
	pthread_mutex_lock(&m->lock);
	r = claim(m, container_id, percent, &e, &done, err);
	if (r == 0 && done)
		memcpy(dir, e->dir, sizeof(dir));
	generation = m->core.readies;
	pthread_mutex_unlock(&m->lock);
	if (r == 0 && !done) {
		en_mps_namespace_name(container_id, name);
		r = make(m, name, percent, dir, err);
		pthread_mutex_lock(&m->lock);
		e = find_entry(m, container_id); /* an entry being made is not removed */
		if (e != NULL)
			asked(m, e, generation, r == 0, keep, dir);
		pthread_cond_broadcast(&m->changed);
		pthread_mutex_unlock(&m->lock);
		if (r != 0)
			mps_wake(m);
	}
	if (r == 0)
		snprintf(ret_dir, EN_PATH_CAP, "%s", dir);
	return r;
}

/* Somebody speaks for containers now: the others have so long to be named. */
static void named(struct en_mps *m)
{
	pthread_mutex_lock(&m->lock);
	if (!m->named) {
		m->named = true;
		m->orphans_from_ms = mps_now(m) + m->o.orphan_ms;
	}
	pthread_mutex_unlock(&m->lock);
}

int en_mps_namespace_make(struct en_mps *m, const char *container_id, int percent,
			  char ret_dir[EN_PATH_CAP], struct err *err)
{
	named(m);
	return make_or_keep(m, container_id, percent, false, ret_dir, err);
}

int en_mps_namespace_keep(struct en_mps *m, const char *container_id, int percent,
			  char ret_dir[EN_PATH_CAP], struct err *err)
{
	named(m);
	return make_or_keep(m, container_id, percent, true, ret_dir, err);
}

void en_mps_namespace_drop(struct en_mps *m, const char *container_id)
{
	struct mps_ns *e;

	pthread_mutex_lock(&m->lock);
	e = find_entry(m, container_id);
	if (e != NULL) {
		e->dropping = true;
		m->sweep_now = true;
	}
	pthread_mutex_unlock(&m->lock);
	if (e != NULL)
		mps_wake(m);
}

void en_mps_namespaces_claimed(struct en_mps *m)
{
	pthread_mutex_lock(&m->lock);
	m->claimed = m->named = true;
	m->orphans_from_ms = mps_now(m);
	m->sweep_now = true;
	pthread_mutex_unlock(&m->lock);
	mps_wake(m);
}

/* ---- keeping both sides equal; the stepping thread ---- */

/* One entry that was not made in this life of the daemon; false: none is left. */
static bool next_lost(struct en_mps *m, char ret_id[256], int *ret_percent)
{
	struct mps_ns *e, *next;
	bool found = false;

	pthread_mutex_lock(&m->lock);
	HASH_ITER(hh, m->ns, e, next) {
		if (found || e->making || e->dropping || e->generation == m->core.readies)
			continue;
		snprintf(ret_id, 256, "%s", e->id);
		*ret_percent = e->percent;
		found = true;
	}
	pthread_mutex_unlock(&m->lock);
	return found;
}

void mps_ns_reconcile(struct en_mps *m)
{
	char id[256], dir[EN_PATH_CAP];
	struct err err = ERR_INIT;
	int percent;

	while (next_lost(m, id, &percent)) {
		/* Its container runs: where that fails it is tried again. */
		if (make_or_keep(m, id, percent, true, dir, &err) == 0)
			continue;
		mps_say(m, "mps_namespace", "%s", err.msg);
		pthread_mutex_lock(&m->lock);
		struct mps_ns *e = find_entry(m, id);

		if (e != NULL)
			e->generation = m->core.readies; /* not again in this round */
		pthread_mutex_unlock(&m->lock);
	}
	mps_ns_sweep(m);
}

/* Under the lock: a share that is not there is made again by the next look. */
static bool check_entry(struct mps_ns *e, const struct en_mps_namespace *row)
{
	e->bad = row == NULL || row->centipercent != e->percent * 100;
	if (e->bad)
		e->generation = 0;
	return !e->bad;
}

/* Removes a namespace with our prefix that was dropped, or that nobody claims and for long enough. One
 * with clients stays, and is tried again by the next sweep. */
static bool remove_unclaimed(struct en_mps *m, const char *name)
{
	bool claimed = false, known = false;
	struct mps_ns *e, *next;

	pthread_mutex_lock(&m->lock);
	HASH_ITER(hh, m->ns, e, next) {
		if (strcmp(e->name, name) != 0)
			continue;
		known = true;
		claimed = e->making || !e->dropping;
	}
	claimed = claimed || (!known && (!m->named || mps_now(m) < m->orphans_from_ms));
	if (!claimed)
		memcpy(m->removing, name, EN_MPS_NAME_CAP);
	pthread_mutex_unlock(&m->lock);
	if (claimed)
		return false;
	remove_ns(m, name);
	pthread_mutex_lock(&m->lock);
	m->removing[0] = '\0';
	pthread_cond_broadcast(&m->changed);
	pthread_mutex_unlock(&m->lock);
	return true;
}

void mps_ns_sweep(struct en_mps *m)
{
	struct en_mps_namespace *rows = calloc(MPS_ROWS_MAX, sizeof(*rows));
	struct mps_ns *e, *next;
	struct err err = ERR_INIT;
	size_t count = 0, bad = 0;
	bool removed = false;

	if (rows == NULL || list(m, rows, MPS_ROWS_MAX, &count, &err) != 0) {
		if (err.msg[0] != '\0')
			mps_say(m, "mps_namespaces", "%s", err.msg);
		free(rows);
		return;
	}
	count = count < MPS_ROWS_MAX ? count : MPS_ROWS_MAX;
	for (size_t i = 0; i < count; i++) {
		if (strncmp(rows[i].name, MPS_NS_PREFIX, strlen(MPS_NS_PREFIX)) == 0)
			removed = remove_unclaimed(m, rows[i].name) || removed;
	}
	if (removed && list(m, rows, MPS_ROWS_MAX, &count, &err) != 0)
		count = SIZE_MAX; /* nothing is concluded */
	pthread_mutex_lock(&m->lock);
	HASH_ITER(hh, m->ns, e, next) {
		const struct en_mps_namespace *row;

		if (e->making || count == SIZE_MAX)
			continue;
		row = find_row(rows, count < MPS_ROWS_MAX ? count : MPS_ROWS_MAX, e->name);
		if (!e->dropping)
			bad += !check_entry(e, row);
		else if (row == NULL)
			drop_entry(m, e);
	}
	if (count != SIZE_MAX)
		m->ns_bad = bad;
	pthread_mutex_unlock(&m->lock);
	free(rows);
}
