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

struct ex_journal {
	int fd;
	bool sync;
	off_t len; /* of whole lines; the writer's own */
	char *path;
	atomic_bool failing; /* the last write failed */
	atomic_bool broken;  /* and the file could not be put right again */
	pthread_mutex_t lock;
	pthread_cond_t wake;
	struct ex_journal_entry *first, **last; /* submitted */
	bool stop;
	pthread_t thread;
	struct buf batch; /* the writer's own */
};

/* ---- the writer's thread ---- */

/* Puts the batch behind what is there: 0, or an error with the file as before, where that can be
 * had. */
static int write_batch(struct ex_journal *j, struct err *err)
{
	struct stat st;
	int rc = 0;

	if (atomic_load(&j->broken))
		return err_set(err, ERR_IO, "%s: a write failed before; restart to go on", j->path);
	if (!buf_ok(&j->batch))
		return err_set(err, ERR_NOMEM, "%s: out of memory", j->path);
	/* Lines in a file that nobody can find any more are lost. */
	if (fstat(j->fd, &st) == 0 && st.st_nlink == 0) {
		atomic_store(&j->failing, true);
		return err_set(err, ERR_IO, "%s: the file was removed while in use; restart",
			       j->path);
	}
	if (file_write_all(j->fd, j->batch.data, j->batch.len) < 0 ||
	    (j->sync && fdatasync(j->fd) < 0))
		rc = err_set(err, ERR_IO, "%s: %s", j->path, strerror(errno));
	atomic_store(&j->failing, rc < 0);
	if (rc == 0) {
		j->len += (off_t)j->batch.len;
		return 0;
	}
	/* Nobody may find the lines of a batch that was answered with an error. */
	if (ftruncate(j->fd, j->len) < 0 || lseek(j->fd, j->len, SEEK_SET) < 0 ||
	    (j->sync && fdatasync(j->fd) < 0))
		atomic_store(&j->broken, true);
	return rc;
}

/* Takes the first entries, up to a batch, off the queue; *ret_end is the first one left. */
static void gather(struct ex_journal *j, struct ex_journal_entry *first,
		   struct ex_journal_entry **ret_end)
{
	struct ex_journal_entry *e = first;

	buf_reset(&j->batch);
	do {
		buf_put(&j->batch, e->line, e->len);
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

static void *writer(void *arg)
{
	struct ex_journal *j = arg;
	struct ex_journal_entry *first;
	bool stop;

	do {
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
	struct stat st;

	j->fd = open(j->path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
	if (j->fd < 0 || fstat(j->fd, &st) < 0)
		return err_set(err, ERR_IO, "%s: %s", j->path, strerror(errno));
	if (!S_ISREG(st.st_mode))
		return err_set(err, ERR_IO, "%s: not a regular file", j->path);
	if (flock(j->fd, LOCK_EX | LOCK_NB) < 0)
		return err_set(err, errno == EWOULDBLOCK ? ERR_CONFLICT : ERR_IO, "%s: %s", j->path,
			       errno == EWOULDBLOCK ? "in use by another process"
						    : strerror(errno));
	return j->sync ? file_sync_folder(j->path, err) : 0;
}

/* What stands behind the last whole line may be cut off only where it is the start of a record: any
 * other file stays as it is. */
static bool torn_record(const char *tail, size_t len)
{
	/* Zeros are what a file system leaves of a write that a power cut met. */
	while (len > 0 && tail[len - 1] == '\0')
		len--;
	return strncmp(tail, EX_JOURNAL_LINE_START,
		       len < strlen(EX_JOURNAL_LINE_START) ? len : strlen(EX_JOURNAL_LINE_START)) ==
	       0;
}

/* The records of a file's text; *ret_good as of ex_journal_read(). */
static int read_text(const char *text, size_t len, const struct ex_journal_reader *r,
		     size_t *ret_good, struct err *err)
{
	int rc = ex_journal_read(text, len, r, ret_good, err);

	if (rc == 0 && !torn_record(text + *ret_good, len - *ret_good))
		rc = err_set(err, ERR_INVALID,
			     "not a journal of tessera-extender: it ends in text that "
			     "is no record; nothing was changed");
	return rc;
}

static int load(struct ex_journal *j, const struct ex_journal_reader *r, size_t *ret_torn,
		struct err *err)
{
	char *text = NULL;
	size_t len = 0, good = 0;
	int rc;

	rc = file_read(j->path, EX_JOURNAL_MAX_BYTES, &text, &len, err);
	if (rc < 0)
		return rc;
	rc = read_text(text, len, r, &good, err);
	free(text);
	if (rc < 0)
		return err_prefix(err, rc, "%s", j->path);
	j->len = (off_t)good;
	if ((good < len && ftruncate(j->fd, j->len) < 0) || lseek(j->fd, j->len, SEEK_SET) < 0)
		return err_set(err, ERR_IO, "%s: %s", j->path, strerror(errno));
	*ret_torn = len - good;
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
	size_t len = 0, good = 0;
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
	rc = read_text(text, len, r, &good, err);
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
	free(j);
}

int ex_journal_open(const char *path, bool sync, const struct ex_journal_reader *r,
		    struct ex_journal **ret, size_t *ret_torn, struct err *err)
{
	struct ex_journal *j = calloc(1, sizeof(*j));
	int rc;

	if (j == NULL)
		return err_set(err, ERR_NOMEM, "%s: out of memory", path);
	j->fd = -1;
	j->sync = sync;
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
