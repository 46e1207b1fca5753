#include "extender/journal.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"

#define BATCH_BYTES ((size_t)1 << 20) /* one write; what comes later waits for the next */
#define COMPACT_BYTES ((size_t)64 << 20)
#define KEEP_BYTES ((size_t)16 << 20)

struct ex_journal {
	struct ex_journal_options o;
	char *path; /* as messages call it */
	char *real; /* the file itself, not a link to it */
	int fd;
	/* the writer's own: */
	size_t len;     /* of whole lines */
	uint32_t chain; /* check sum of the last one */
	size_t compact_at;
	struct buf batch;
	uint32_t batch_chain; /* of its last line */
	/* for all: */
	atomic_bool failing; /* the last write failed */
	atomic_bool broken;  /* and the file could not be put right again */
	pthread_mutex_t lock;
	pthread_cond_t wake;
	struct ex_journal_entry *first, **last; /* submitted */
	bool stop;
	pthread_t thread;
};

/* ---- the writer's thread ---- */

/* Lines are of use only in the file that the next start will find at the path, behind the ones that are
 * there now. */
static int check_file(const struct ex_journal *j, struct err *err)
{
	struct stat ours, there;

	if (fstat(j->fd, &ours) < 0)
		return err_set(err, ERR_IO, "%s: %s", j->path, strerror(errno));
	if (ours.st_nlink == 0 || stat(j->path, &there) < 0)
		return err_set(err, ERR_IO, "%s: the file was removed while in use; restart",
			       j->path);
	if (there.st_ino != ours.st_ino || there.st_dev != ours.st_dev)
		return err_set(err, ERR_IO,
			       "%s: another file is there than the one in use; restart", j->path);
	if ((size_t)ours.st_size != j->len)
		return err_set(err, ERR_IO,
			       "%s: %jd bytes, not %zu: somebody else writes into it; restart",
			       j->path, (intmax_t)ours.st_size, j->len);
	return 0;
}

/* Puts the batch behind what is there: 0, or an error with the file as before, where that can be
 * had. */
static int write_batch(struct ex_journal *j, struct err *err)
{
	int rc = 0;

	if (atomic_load(&j->broken))
		return err_set(err, ERR_IO, "%s: a write failed before; restart to go on", j->path);
	if (!buf_ok(&j->batch))
		return err_set(err, ERR_NOMEM, "%s: out of memory", j->path);
	rc = check_file(j, err);
	if (rc == 0 && j->len + j->batch.len > j->o.max_bytes)
		rc = err_set(
			err, ERR_TOO_LARGE,
			"%s: more than %zu bytes; pods must be released, or a new journal begun",
			j->path, j->o.max_bytes);
	if (rc < 0) {
		atomic_store(&j->failing, true);
		return rc;
	}
	if (file_write_all(j->fd, j->batch.data, j->batch.len) < 0 ||
	    (j->o.sync && fdatasync(j->fd) < 0))
		rc = err_set(err, ERR_IO, "%s: %s", j->path, strerror(errno));
	atomic_store(&j->failing, rc < 0);
	if (rc == 0) {
		j->len += j->batch.len;
		j->chain = j->batch_chain;
		return 0;
	}
	/* Nobody may find the lines of a batch that was answered with an error. */
	if (ftruncate(j->fd, (off_t)j->len) < 0 || lseek(j->fd, (off_t)j->len, SEEK_SET) < 0 ||
	    (j->o.sync && fdatasync(j->fd) < 0))
		atomic_store(&j->broken, true);
	return rc;
}

/* Takes the first entries, up to a batch, off the queue; *ret_end is the first one left. */
static void gather(struct ex_journal *j, struct ex_journal_entry *first,
		   struct ex_journal_entry **ret_end)
{
	struct ex_journal_entry *e = first;

	buf_reset(&j->batch);
	j->batch_chain = j->chain;
	do {
		ex_journal_seal(&j->batch, e->line, e->len, &j->batch_chain);
		e = e->next;
	} while (e != NULL && j->batch.len + e->len <= BATCH_BYTES);
	*ret_end = e;
}

static void write_queue(struct ex_journal *j, struct ex_journal_entry *first)
{
	struct ex_journal_entry *end, *next;
	struct err err;
	int rc;

	while (first != NULL) {
		err = (struct err)ERR_INIT;
		gather(j, first, &end);
		rc = write_batch(j, &err);
		for (; first != end; first = next) {
			next = first->next; /* done may free the entry */
			first->done(first, rc, &err);
		}
	}
}

/* ---- compacting ---- */

/* Writes text into a file that takes the journal's place. *ret_fd: it, locked. */
static int replace_file(struct ex_journal *j, const struct buf *text, int *ret_fd, struct err *err)
{
	char *path = NULL;
	struct stat st;
	int fd = -1, rc = 0;

	if (asprintf(&path, "%s.new", j->real) < 0)
		return err_set(err, ERR_NOMEM, "out of memory");
	if (fstat(j->fd, &st) == 0)
		fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0 || fchmod(fd, st.st_mode & 07777) < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0 ||
	    file_write_all(fd, text->data, text->len) < 0 || fdatasync(fd) < 0 ||
	    rename(path, j->real) < 0)
		rc = err_set(err, ERR_IO, "%s: %s", path, strerror(errno));
	if (rc < 0 && fd >= 0) {
		unlink(path);
		close(fd);
	}
	free(path);
	*ret_fd = fd;
	return rc;
}

/* What is left of the file, which is read once more: what is not right on the disk is not copied. */
static int read_less(const struct ex_journal *j, struct buf *ret, uint32_t *ret_chain,
		     struct err *err)
{
	char *text = NULL;
	size_t len = 0;
	int rc = check_file(j, err);

	if (rc == 0)
		rc = file_read(j->real, j->len, &text, &len, err);
	if (rc == 0 && len != j->len)
		rc = err_set(err, ERR_IO, "%s: somebody else writes into it", j->path);
	if (rc == 0)
		rc = ex_journal_compact(text, len, j->o.keep_bytes, ret, ret_chain, err);
	free(text);
	return rc;
}

static int compact(struct ex_journal *j, struct err *err)
{
	struct buf out = BUF_INIT;
	uint32_t chain = 0;
	int fd = -1, rc = read_less(j, &out, &chain, err);

	if (rc == 0)
		rc = replace_file(j, &out, &fd, err);
	if (rc == 0) {
		close(j->fd);
		j->fd = fd;
		j->len = out.len;
		j->chain = chain;
		/* Until it is known which of the two files a power cut leaves, no line is safe. */
		if (j->o.sync && (rc = file_sync_folder(j->real, err)) < 0)
			atomic_store(&j->broken, true);
	}
	buf_fini(&out);
	return rc;
}

/* Where it cannot be done, the journal goes on as it is, and it is tried again later. */
static void compact_if_due(struct ex_journal *j)
{
	size_t before = j->len;
	struct err err = ERR_INIT;
	char quoted[ERR_MSG_CAP * 2];
	int rc;

	if (j->len < j->compact_at || atomic_load(&j->broken))
		return;
	rc = compact(j, &err);
	j->compact_at = rc == 0 ? 2 * j->len : j->len + j->o.compact_bytes / 4;
	if (j->compact_at < j->o.compact_bytes)
		j->compact_at = j->o.compact_bytes;
	if (rc < 0)
		log_event(j->o.log, LOG_LEVEL_WARN, "journal-not-compacted", "reason=%s",
			  log_quote(err.msg, quoted, sizeof(quoted)));
	else
		log_event(j->o.log, LOG_LEVEL_INFO, "journal-compacted", "bytes=%zu before=%zu",
			  j->len, before);
}

/* ---- the thread ---- */

static void *writer(void *arg)
{
	struct ex_journal *j = arg;
	struct ex_journal_entry *first;
	bool stop;

	do {
		compact_if_due(j);
		pthread_mutex_lock(&j->lock);
		while (j->first == NULL && !j->stop)
			pthread_cond_wait(&j->wake, &j->lock);
		first = j->first;
		j->first = NULL;
		j->last = &j->first;
		stop = j->stop && first == NULL;
		pthread_mutex_unlock(&j->lock);
		write_queue(j, first);
	} while (!stop);
	return NULL;
}

void ex_journal_submit(struct ex_journal *j, struct ex_journal_entry *e)
{
	e->next = NULL;
	pthread_mutex_lock(&j->lock);
	*j->last = e;
	j->last = &e->next;
	pthread_cond_signal(&j->wake);
	pthread_mutex_unlock(&j->lock);
}

struct waiter {
	struct ex_journal_entry entry;
	pthread_mutex_t lock;
	pthread_cond_t done;
	bool finished;
	int rc;
	struct err *err;
};

static void waiter_done(struct ex_journal_entry *e, int rc, const struct err *err)
{
	struct waiter *w = (struct waiter *)e; /* entry is its first member */

	pthread_mutex_lock(&w->lock);
	w->rc = rc;
	if (rc < 0 && w->err != NULL)
		*w->err = *err;
	w->finished = true;
	pthread_cond_signal(&w->done);
	pthread_mutex_unlock(&w->lock);
}

int ex_journal_append(struct ex_journal *j, const char *line, size_t len, struct err *err)
{
	struct waiter w = {.entry = {.line = line, .len = len, .done = waiter_done}, .err = err};

	pthread_mutex_init(&w.lock, NULL);
	pthread_cond_init(&w.done, NULL);
	ex_journal_submit(j, &w.entry);
	pthread_mutex_lock(&w.lock);
	while (!w.finished)
		pthread_cond_wait(&w.done, &w.lock);
	pthread_mutex_unlock(&w.lock);
	pthread_cond_destroy(&w.done);
	pthread_mutex_destroy(&w.lock);
	return w.rc;
}

bool ex_journal_broken(const struct ex_journal *j)
{
	return atomic_load(&j->broken) || atomic_load(&j->failing);
}

/* ---- opening and closing ---- */

static int open_file(struct ex_journal *j, struct err *err)
{
	const char *path = j->path;
	struct stat st, there;
	bool locked;

	j->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
	if (j->fd < 0 || fstat(j->fd, &st) < 0)
		return err_set(err, ERR_IO, "%s: %s", path, strerror(errno));
	if (!S_ISREG(st.st_mode))
		return err_set(err, ERR_IO, "%s: not a regular file", path);
	locked = flock(j->fd, LOCK_EX | LOCK_NB) == 0;
	if (!locked && errno != EWOULDBLOCK)
		return err_set(err, ERR_IO, "%s: %s", path, strerror(errno));
	/* The lock of a file that was replaced by compacting meanwhile is worth nothing. */
	if (!locked || stat(path, &there) < 0 || there.st_ino != st.st_ino ||
	    there.st_dev != st.st_dev)
		return err_set(err, ERR_CONFLICT, "%s: in use by another process", path);
	j->real = realpath(path, NULL);
	if (j->real == NULL)
		return err_set(err, ERR_IO, "%s: %s", path, strerror(errno));
	return j->o.sync ? file_sync_folder(j->real, err) : 0;
}

/* What stands behind the last whole line may be cut off only where it is the start of a record: any
 * other file stays as it is. */
static bool torn_record(const char *tail, size_t len)
{
	/* Zeros are what a file system leaves of a write that a power cut met. */
	while (len > 0 && tail[len - 1] == '\0')
		len--;
	return ex_journal_starts(tail, len);
}

/* The records of a file's text; *ret as of ex_journal_read(). */
static int read_text(const char *text, size_t len, const struct ex_journal_reader *r,
		     struct ex_journal_end *ret, struct err *err)
{
	int rc = ex_journal_read(text, len, r, ret, err);

	if (rc == 0 && !torn_record(text + ret->good, len - ret->good))
		rc = err_set(err, ERR_INVALID,
			     "not a journal of tessera-extender: it ends in text that "
			     "is no record; nothing was changed");
	return rc;
}

static int load(struct ex_journal *j, const struct ex_journal_reader *r, size_t *ret_torn,
		struct err *err)
{
	char *text = NULL;
	struct ex_journal_end end = {0};
	size_t len = 0;
	int rc;

	rc = file_read(j->path, j->o.max_bytes, &text, &len, err);
	if (rc < 0)
		return rc;
	rc = read_text(text, len, r, &end, err);
	free(text);
	if (rc < 0)
		return err_prefix(err, rc, "%s", j->path);
	if ((end.good < len && ftruncate(j->fd, (off_t)end.good) < 0) ||
	    lseek(j->fd, (off_t)end.good, SEEK_SET) < 0)
		return err_set(err, ERR_IO, "%s: %s", j->path, strerror(errno));
	j->len = end.good;
	j->chain = end.chain;
	*ret_torn = len - end.good;
	return 0;
}

/* A new one is made there. */
static int check_folder(const char *path, struct err *err)
{
	char folder[PATH_MAX];

	if (snprintf(folder, sizeof(folder), "%s", path) >= (int)sizeof(folder))
		return err_set(err, ERR_IO, "%s: %s", path, strerror(ENAMETOOLONG));
	return access(dirname(folder), W_OK | X_OK) < 0
		       ? err_set(err, ERR_IO, "%s: %s", path, strerror(errno))
		       : 0;
}

int ex_journal_check(const char *path, const struct ex_journal_reader *r, struct err *err)
{
	int fd = open(path, O_RDWR | O_CLOEXEC), rc = 0;
	struct ex_journal_end end;
	size_t len = 0;
	char *text = NULL;
	struct stat st;

	if (fd < 0 && errno == ENOENT)
		return check_folder(path, err);
	if (fd < 0 || fstat(fd, &st) < 0)
		rc = err_set(err, ERR_IO, "%s: %s", path, strerror(errno));
	else if (!S_ISREG(st.st_mode))
		rc = err_set(err, ERR_IO, "%s: not a regular file", path);
	if (fd >= 0)
		close(fd);
	if (rc == 0)
		rc = file_read(path, EX_JOURNAL_MAX_BYTES, &text, &len, err);
	if (rc < 0)
		return rc;
	rc = read_text(text, len, r, &end, err);
	free(text);
	return rc < 0 ? err_prefix(err, rc, "%s", path) : 0;
}

static void journal_free(struct ex_journal *j)
{
	if (j->fd >= 0)
		close(j->fd);
	pthread_cond_destroy(&j->wake);
	pthread_mutex_destroy(&j->lock);
	buf_fini(&j->batch);
	free(j->path);
	free(j->real);
	free(j);
}

int ex_journal_open(const char *path, const struct ex_journal_options *o,
		    const struct ex_journal_reader *r, struct ex_journal **ret, size_t *ret_torn,
		    struct err *err)
{
	struct ex_journal *j = calloc(1, sizeof(*j));
	int rc;

	if (j == NULL)
		return err_set(err, ERR_NOMEM, "%s: out of memory", path);
	j->fd = -1;
	j->o = *o;
	j->o.max_bytes = o->max_bytes != 0 ? o->max_bytes : EX_JOURNAL_MAX_BYTES;
	j->o.compact_bytes = o->compact_bytes != 0 ? o->compact_bytes : COMPACT_BYTES;
	j->o.keep_bytes = o->keep_bytes != 0 ? o->keep_bytes : KEEP_BYTES;
	j->compact_at = j->o.compact_bytes;
	j->last = &j->first;
	pthread_mutex_init(&j->lock, NULL);
	pthread_cond_init(&j->wake, NULL);
	j->path = strdup(path);
	rc = j->path != NULL ? open_file(j, err)
			     : err_set(err, ERR_NOMEM, "%s: out of memory", path);
	if (rc == 0)
		rc = load(j, r, ret_torn, err);
	if (rc == 0 && pthread_create(&j->thread, NULL, writer, j) != 0)
		rc = err_set(err, ERR_IO, "%s: cannot start a thread", path);
	if (rc < 0)
		journal_free(j);
	else
		*ret = j;
	return rc;
}

void ex_journal_close(struct ex_journal *j)
{
	if (j == NULL)
		return;
	pthread_mutex_lock(&j->lock);
	j->stop = true;
	pthread_cond_signal(&j->wake);
	pthread_mutex_unlock(&j->lock);
	pthread_join(j->thread, NULL);
	journal_free(j);
}
