#include "enforcer/hook_cgroup.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/file.h"

#define CGROUP_FILE_MAX ((size_t)64 << 10)
#define MOUNTINFO_MAX ((size_t)16 << 20)

int en_container_id_check(const char *id, struct err *err)
{
	static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
				      "0123456789_.-";
	size_t len = strlen(id);

	if (len == 0 || len >= EN_CONTAINER_ID_CAP || strspn(id, allowed) != len ||
	    strspn(id, ".") == len)
		return err_set(err, ERR_INVALID, "\"%.130s\" is no container id", id);
	return 0;
}

int en_cgroup_check(const char *cgroup, const char *container_id, struct err *err)
{
	size_t len = strlen(cgroup);

	if (en_container_id_check(container_id, err) != 0)
		return ERR_INVALID;
	if (cgroup[0] != '/' || len >= EN_CGROUP_CAP || strstr(cgroup, "/..") != NULL ||
	    strchr(cgroup, '\n') != NULL || strstr(cgroup, container_id) == NULL)
		return err_set(err, ERR_INVALID, "\"%.300s\" is not a cgroup of container %s",
			       cgroup, container_id);
	return 0;
}

/* ---- /proc/<pid>/cgroup ---- */

/* The path of the line "0::<path>", as a string of its own in text. NULL: there is none. */
static char *unified_path(char *text)
{
	while (text != NULL) {
		char *end = strchr(text, '\n');

		if (end != NULL)
			*end = '\0';
		if (strncmp(text, "0::", 3) == 0)
			return text + 3;
		text = end != NULL ? end + 1 : NULL;
	}
	return NULL;
}

static bool ends_in(const char *s, const char *tail)
{
	size_t len = strlen(s), tail_len = strlen(tail);

	return len >= tail_len && strcmp(s + len - tail_len, tail) == 0;
}

static int take_path(const char *path, uint32_t pid, const char *container_id,
		     char ret[EN_CGROUP_CAP], struct err *err)
{
	if (path == NULL)
		return err_set(err, ERR_CONFLICT,
			       "process %u is in no cgroup of version 2: memory limits need it",
			       pid);
	if (strlen(path) >= EN_CGROUP_CAP)
		return err_set(err, ERR_TOO_LARGE, "cgroup of process %u: %zu characters", pid,
			       strlen(path));
	if (ends_in(path, " (deleted)"))
		return err_set(err, ERR_CONFLICT, "cgroup of process %u is being removed", pid);
	if (strncmp(path, "/..", 3) == 0)
		return err_set(err, ERR_CONFLICT,
			       "cgroup of process %u is outside of our cgroup namespace: run in "
			       "the host's",
			       pid);
	if (en_cgroup_check(path, container_id, NULL) != 0)
		return err_set(err, ERR_CONFLICT,
			       "process %u is in cgroup \"%.200s\", not in one of container %s",
			       pid, path, container_id);
	memcpy(ret, path, strlen(path) + 1);
	return 0;
}

static int read_path(const char *proc, uint32_t pid, const char *container_id,
		     char ret[EN_CGROUP_CAP], struct err *err)
{
	char name[EN_CGROUP_CAP], *text;
	size_t len;
	int r;

	r = snprintf(name, sizeof(name), "%s/%u/cgroup", proc, pid);
	if (r < 0 || (size_t)r >= sizeof(name))
		return err_set(err, ERR_TOO_LARGE, "%.200s: name too long", proc);
	r = file_read(name, CGROUP_FILE_MAX, &text, &len, err);
	if (r != 0)
		return r;
	r = take_path(unified_path(text), pid, container_id, ret, err);
	free(text);
	return r;
}

/* A file descriptor keeps the process's number from being given to another one unnoticed. */
int en_cgroup_of(const char *proc, uint32_t pid, const char *container_id, char ret[EN_CGROUP_CAP],
		 struct err *err)
{
	char path[EN_CGROUP_CAP];
	struct pollfd gone = {.events = POLLIN};
	int r = en_container_id_check(container_id, err);

	if (r != 0)
		return r;
	if (pid == 0 || pid > INT32_MAX)
		return err_set(err, ERR_NOT_FOUND, "container %s: process %u", container_id, pid);
	gone.fd = (int)syscall(SYS_pidfd_open, (pid_t)pid, 0U);
	if (gone.fd < 0 && errno == ESRCH)
		return err_set(err, ERR_NOT_FOUND, "container %s: process %u is gone", container_id,
			       pid);
	r = read_path(proc, pid, container_id, path, err);
	if (gone.fd >= 0) { /* kernels before 5.3 do without */
		if (r == 0 && poll(&gone, 1, 0) != 0)
			r = err_set(err, ERR_NOT_FOUND, "container %s: process %u is gone",
				    container_id, pid);
		close(gone.fd);
	}
	if (r == 0)
		memcpy(ret, path, strlen(path) + 1);
	return r;
}

/* ---- the mount ---- */

/* "\040" and the like, in place. */
static void unescape(char *s)
{
	char *to = s;

	while (*s != '\0') {
		if (s[0] == '\\' && s[1] >= '0' && s[1] <= '3' && s[2] >= '0' && s[2] <= '7' &&
		    s[3] >= '0' && s[3] <= '7') {
			*to++ = (char)((s[1] - '0') * 64 + (s[2] - '0') * 8 + (s[3] - '0'));
			s += 4;
		} else {
			*to++ = *s++;
		}
	}
	*to = '\0';
}

/* id parent major:minor root mountpoint options... - fstype source options */
static bool mount_of_line(char *line, char **ret)
{
	char *type = strstr(line, " - "), *field[5];

	if (type == NULL || strncmp(type + 3, "cgroup2 ", 8) != 0)
		return false;
	for (int i = 0; i < 5; i++) {
		field[i] = strsep(&line, " ");
		if (line == NULL)
			return false;
	}
	if (strcmp(field[3], "/") != 0)
		return false;
	unescape(field[4]);
	*ret = field[4];
	return true;
}

int en_cgroup_mount(const char *proc, char ret[EN_CGROUP_CAP], struct err *err)
{
	char name[EN_CGROUP_CAP], *text, *at, *line, *mount = NULL;
	size_t len;
	int r;

	r = snprintf(name, sizeof(name), "%s/self/mountinfo", proc);
	if (r < 0 || (size_t)r >= sizeof(name))
		return err_set(err, ERR_TOO_LARGE, "%.200s: name too long", proc);
	r = file_read(name, MOUNTINFO_MAX, &text, &len, err);
	if (r != 0)
		return r;
	at = text;
	while (mount == NULL && (line = strsep(&at, "\n")) != NULL)
		(void)mount_of_line(line, &mount);
	if (mount == NULL || strlen(mount) >= EN_CGROUP_CAP)
		r = err_set(err, ERR_NOT_FOUND, "cgroup v2 is not mounted (%s)", name);
	else
		memcpy(ret, mount, strlen(mount) + 1);
	free(text);
	return r;
}

int en_cgroup_join(const char *mount, const char *cgroup, char ret[EN_CGROUP_CAP], struct err *err)
{
	int n = snprintf(ret, EN_CGROUP_CAP, "%s%s", mount, cgroup);

	if (n < 0 || n >= EN_CGROUP_CAP)
		return err_set(err, ERR_TOO_LARGE, "cgroup \"%.100s...\": %d characters", cgroup,
			       n);
	return 0;
}
