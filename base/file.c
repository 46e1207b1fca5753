/* Shell code: not part of the core, it does I/O. */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define READ_FIRST 65536 /* where the size is not known before */

struct reader {
	int fd;
	const char *name; /* as messages call it */
	char *data;
	size_t len, cap, max;
};

static int reader_grow(struct reader *r, struct err *err)
{
	/* One byte over the limit is read, to tell "exactly full" from "too large". */
	size_t top = r->max < SIZE_MAX - 2 ? r->max + 2 : SIZE_MAX;
	size_t cap = r->cap > top / 2 ? top : r->cap * 2;
	char *data;

	if (r->cap >= top)
		return err_set(err, ERR_TOO_LARGE, "%s: larger than %zu bytes", r->name, r->max);
	data = realloc(r->data, cap);
	if (data == NULL)
		return err_set(err, ERR_NOMEM, "%s: out of memory after %zu bytes", r->name,
			       r->len);
	r->data = data;
	r->cap = cap;
	return 0;
}

static int reader_run(struct reader *r, struct err *err)
{
	ssize_t n;
	int rc;

	for (;;) {
		if (r->len + 1 >= r->cap) {
			rc = reader_grow(r, err);
			if (rc < 0)
				return rc;
		}
		n = read(r->fd, r->data + r->len, r->cap - r->len - 1);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return err_set(err, ERR_IO, "%s: %s", r->name, strerror(errno));
		if (n == 0)
			break;
		r->len += (size_t)n;
		if (r->len > r->max)
			return err_set(err, ERR_TOO_LARGE, "%s: larger than %zu bytes", r->name,
				       r->max);
	}
	r->data[r->len] = '\0';
	return 0;
}

int file_read(const char *path, size_t max, char **ret, size_t *ret_len, struct err *err)
{
	bool is_stdin = strcmp(path, "-") == 0;
	struct reader r = {.name = is_stdin ? "standard input" : path, .max = max};
	struct stat st;
	int rc;

	r.fd = is_stdin ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
	if (r.fd < 0)
		return err_set(err, ERR_IO, "%s: %s", r.name, strerror(errno));
	r.cap = READ_FIRST;
	if (fstat(r.fd, &st) == 0 && S_ISREG(st.st_mode)) {
		if ((uintmax_t)st.st_size > max)
			rc = err_set(err, ERR_TOO_LARGE, "%s: %jd bytes, larger than %zu", r.name,
				     (intmax_t)st.st_size, max);
		else
			rc = 0;
		if (rc < 0)
			goto out;
		/* Room for the NUL and for one read that finds the end. */
		r.cap = (size_t)st.st_size + 2;
	}
	r.data = malloc(r.cap);
	rc = r.data != NULL ? reader_run(&r, err)
			    : err_set(err, ERR_NOMEM, "%s: out of memory", r.name);
	if (rc == 0) {
		*ret = r.data;
		*ret_len = r.len;
		r.data = NULL;
	}
out:
	free(r.data);
	if (!is_stdin)
		close(r.fd);
	return rc;
}

int file_write_all(int fd, const void *data, size_t len)
{
	const char *p = data;
	ssize_t n;

	while (len > 0) {
		n = write(fd, p, len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -1;
		p += n;
		len -= (size_t)n;
	}
	return 0;
}

int file_sync_folder(const char *path, struct err *err)
{
	const char *slash = strrchr(path, '/');
	char *dir = slash == NULL ? strdup(".") : strndup(path, (size_t)(slash - path) + 1);
	int fd, rc = 0;

	if (dir == NULL)
		return err_set(err, ERR_NOMEM, "%s: out of memory", path);
	fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	/* Some file systems cannot sync a folder (EINVAL): nothing more can be done there. */
	if (fd < 0 || (fsync(fd) < 0 && errno != EINVAL))
		rc = err_set(err, ERR_IO, "%s: %s", dir, strerror(errno));
	if (fd >= 0)
		close(fd);
	free(dir);
	return rc;
}

/* Devices, pipes and the like cannot be replaced: what is written goes into them. */
static int write_into(const char *path, const void *data, size_t len, struct err *err)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC), rc = 0;

	if (fd < 0 || file_write_all(fd, data, len) < 0)
		rc = err_set(err, ERR_IO, "%s: %s", path, strerror(errno));
	if (fd >= 0)
		close(fd);
	return rc;
}

static int replace_regular(const char *path, const void *data, size_t len, struct err *err)
{
	size_t tmp_cap = strlen(path) + sizeof(".XXXXXX");
	char *tmp = malloc(tmp_cap);
	int fd, rc = 0;

	if (tmp == NULL)
		return err_set(err, ERR_NOMEM, "%s: out of memory", path);
	snprintf(tmp, tmp_cap, "%s.XXXXXX", path);
	fd = mkostemp(tmp, O_CLOEXEC);
	if (fd < 0) {
		rc = err_set(err, ERR_IO, "%s: %s", tmp, strerror(errno));
		free(tmp);
		return rc;
	}
	if (fchmod(fd, 0644) < 0 || file_write_all(fd, data, len) < 0 || fsync(fd) < 0)
		rc = err_set(err, ERR_IO, "%s: %s", tmp, strerror(errno));
	close(fd);
	if (rc == 0 && rename(tmp, path) < 0)
		rc = err_set(err, ERR_IO, "rename %s to %s: %s", tmp, path, strerror(errno));
	if (rc < 0)
		unlink(tmp);
	else
		rc = file_sync_folder(path, err);
	free(tmp);
	return rc;
}

int file_replace(const char *path, const void *data, size_t len, struct err *err)
{
	char *target = NULL;
	struct stat st;
	int rc;

	if (stat(path, &st) == 0) {
		if (!S_ISREG(st.st_mode))
			return write_into(path, data, len, err);
		target = realpath(path, NULL); /* the file that a symlink leads to */
		if (target == NULL)
			return err_set(err, errno == ENOMEM ? ERR_NOMEM : ERR_IO, "%s: %s", path,
				       strerror(errno));
	}
	rc = replace_regular(target != NULL ? target : path, data, len, err);
	free(target);
	return rc;
}
