#include "enforcer/hook_wire.h"

#include <string.h>

#include "base/quantity.h"

#define VERSION "tessera-hook 1"

static int uuid_check(const char *uuid, struct err *err)
{
	static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
				      "0123456789_.-";
	size_t len = strlen(uuid);

	if (len == 0 || len >= EN_UUID_CAP || strspn(uuid, allowed) != len)
		return err_set(err, ERR_INVALID, "\"%.100s\" is no GPU", uuid);
	return 0;
}

static int number(const char *s, int64_t min, int64_t max, int64_t *ret, struct err *err)
{
	if (s == NULL || s[0] < '0' || s[0] > '9')
		return err_set(err, ERR_INVALID, "\"%.40s\" is no number", s != NULL ? s : "");
	return integer_parse(s, min, max, ret, err);
}

static int add(struct en_limit_request *r, const char *uuid, const char *soft, const char *hard,
	       struct err *err)
{
	struct en_gpu_limit g = {.soft_mib = 1};
	int rc = uuid_check(uuid, err);

	if (rc == 0)
		rc = number(soft, 1, INT32_MAX, &g.soft_mib, err);
	if (rc == 0)
		rc = number(hard, g.soft_mib, INT32_MAX, &g.hard_mib, err);
	if (rc != 0)
		return rc == ERR_RANGE ? ERR_INVALID : rc;
	for (size_t i = 0; i < r->gpu_count; i++) {
		if (strcmp(r->gpus[i].uuid, uuid) == 0)
			return err_set(err, ERR_INVALID, "%s is there twice", uuid);
	}
	if (r->gpu_count == ST_GPUS_MAX)
		return err_set(err, ERR_TOO_LARGE, "more than %d GPUs", ST_GPUS_MAX);
	memcpy(g.uuid, uuid, strlen(uuid) + 1);
	r->gpus[r->gpu_count++] = g;
	return 0;
}

int en_limit_request_add(struct en_limit_request *r, const char *text, struct err *err)
{
	char copy[EN_UUID_CAP + 32], *at = copy;
	const char *uuid, *soft, *hard;
	size_t len = strlen(text);

	if (len >= sizeof(copy))
		return err_set(err, ERR_INVALID, "\"%.130s\" is not UUID:SOFT:HARD", text);
	memcpy(copy, text, len + 1);
	uuid = strsep(&at, ":");
	soft = strsep(&at, ":");
	hard = at;
	if (hard == NULL)
		return err_set(err, ERR_INVALID, "\"%.130s\" is not UUID:SOFT:HARD", text);
	return add(r, uuid, soft, hard, err);
}

void en_limit_request_write(const struct en_limit_request *r, struct buf *b)
{
	buf_printf(b, VERSION "\ncontainer %s\nprocess %u\ncgroup %s\n", r->id, r->pid, r->cgroup);
	for (size_t i = 0; i < r->gpu_count; i++)
		buf_printf(b, "gpu %s %lld %lld\n", r->gpus[i].uuid, (long long)r->gpus[i].soft_mib,
			   (long long)r->gpus[i].hard_mib);
}

/* ---- reading ---- */

/* The value of the next line, which starts with key and a blank; NULL: it does not. */
static char *next_value(char **at, const char *key)
{
	char *line = strsep(at, "\n");
	size_t len = strlen(key);

	if (line == NULL || *at == NULL || strncmp(line, key, len) != 0 || line[len] != ' ')
		return NULL;
	return line + len + 1;
}

static int read_head(char **at, struct en_limit_request *r, struct err *err)
{
	const char *line = strsep(at, "\n"), *id, *pid, *cgroup;
	int64_t n = 0;

	if (line == NULL || *at == NULL || strcmp(line, VERSION) != 0)
		return err_set(err, ERR_INVALID, "hook request: its first line is not " VERSION);
	id = next_value(at, "container");
	pid = id != NULL ? next_value(at, "process") : NULL;
	cgroup = pid != NULL ? next_value(at, "cgroup") : NULL;
	if (cgroup == NULL)
		return err_set(err, ERR_INVALID,
			       "hook request: no lines container, process and cgroup");
	if (number(pid, 1, INT32_MAX, &n, err) != 0 || en_cgroup_check(cgroup, id, err) != 0)
		return err_prefix(err, ERR_INVALID, "hook request");
	memcpy(r->id, id, strlen(id) + 1);
	memcpy(r->cgroup, cgroup, strlen(cgroup) + 1);
	r->pid = (uint32_t)n;
	return 0;
}

int en_limit_request_read(const char *text, size_t len, struct en_limit_request *ret,
			  struct err *err)
{
	char copy[EN_HOOK_REQUEST_MAX + 1], *at = copy;
	struct en_limit_request r = {.gpu_count = 0};
	int rc;

	if (len > EN_HOOK_REQUEST_MAX || memchr(text, '\0', len) != NULL)
		return err_set(err, ERR_INVALID, "hook request: %zu bytes, or not text", len);
	memcpy(copy, text, len);
	copy[len] = '\0';
	rc = read_head(&at, &r, err);
	while (rc == 0 && at[0] != '\0') {
		char *value = next_value(&at, "gpu");
		const char *uuid = strsep(&value, " "), *soft = strsep(&value, " ");

		rc = value == NULL || uuid == NULL
			     ? err_set(err, ERR_INVALID, "hook request: no line gpu")
			     : add(&r, uuid, soft, value, err);
	}
	if (rc == 0 && r.gpu_count == 0)
		rc = err_set(err, ERR_INVALID, "hook request: no GPU");
	if (rc == 0)
		*ret = r;
	return rc;
}

/* ---- limits ---- */

int en_limits_set_all(const struct en_limits_ops *ops, const char *cgroup,
		      const struct en_limit_request *r, bool undo, struct err *err)
{
	size_t i;
	int rc = 0;

	for (i = 0; i < r->gpu_count; i++) {
		rc = ops->set(ops->ctx, cgroup, r->gpus[i].uuid, r->gpus[i].soft_mib,
			      r->gpus[i].hard_mib, err);
		if (rc != 0)
			break;
	}
	if (rc == 0)
		return 0;
	err_prefix(err, rc, "memory limits of container %s on %s", r->id, r->gpus[i].uuid);
	while (undo && i > 0) { /* a soft limit that stays would be counted for the cgroups above */
		i--;
		(void)ops->set(ops->ctx, cgroup, r->gpus[i].uuid, 0, EN_LIMIT_NONE, NULL);
	}
	return rc;
}
