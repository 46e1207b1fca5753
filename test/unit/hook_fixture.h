/* For tests of the hook: a /proc made up around our own process number, a recorder in the place of the driver, the hook run as a program. */
#ifndef TESSERA_TEST_HOOK_FIXTURE_H
#define TESSERA_TEST_HOOK_FIXTURE_H

#include <criterion/criterion.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "enforcer/hook.h"
#include "enforcer/hook_cgroup.h"
#include "enforcer/hook_server.h"
#include "enforcer/hook_state.h"
#include "enforcer/hook_wire.h"
#include "test/lib/oom.h"

#define ID "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

/* The beginning of a request. */
#define HEAD "tessera-hook 1\ncontainer " ID "\nprocess 1\ncgroup /" ID "\n"

/* ---- a made-up /proc ---- */

struct proc {
	char root[64];
};

static inline void put_file(const struct proc *p, const char *name, const char *text)
{
	char path[256];
	struct err err = ERR_INIT;

	snprintf(path, sizeof(path), "%s/%s", p->root, name);
	*strrchr(path, '/') = '\0';
	mkdir(path, 0700);
	snprintf(path, sizeof(path), "%s/%s", p->root, name);
	cr_assert_eq(file_replace(path, text, strlen(text), &err), 0, "%s", err.msg);
}

static inline void put_cgroup(const struct proc *p, const char *text)
{
	char name[64];

	snprintf(name, sizeof(name), "%d/cgroup", (int)getpid());
	put_file(p, name, text);
}

static inline void proc_init(struct proc *p)
{
	snprintf(p->root, sizeof(p->root), "/tmp/tessera-proc-XXXXXX");
	cr_assert_not_null(mkdtemp(p->root));
	put_file(
		p, "self/mountinfo",
		"22 1 0:5 / /proc rw - proc proc rw\n"
		"28 20 0:25 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n");
}

static inline void proc_fini(struct proc *p)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -r %s", p->root);
	/* NOLINTNEXTLINE(cert-env33-c): a fixed command on a folder of ours */
	cr_assert_eq(system(command), 0);
}

/* ---- the hook as a program ---- */

struct recorder {
	struct en_limits_ops ops;
	pthread_mutex_t lock;
	struct buf text;
	const char *fail; /* a GPU */
};

static inline int record_set(void *ctx, const char *cgroup, const char *gpu, int64_t soft,
			     int64_t hard, struct err *err)
{
	struct recorder *r = ctx;

	pthread_mutex_lock(&r->lock);
	buf_printf(&r->text, "%s %s %lld %lld;", cgroup, gpu, (long long)soft,
		   hard == EN_LIMIT_NONE ? -1LL : (long long)hard);
	pthread_mutex_unlock(&r->lock);
	return r->fail != NULL && strcmp(r->fail, gpu) == 0
		       ? err_set(err, ERR_IO, "Insufficient\nPermissions")
		       : 0;
}

static inline void recorder_init(struct recorder *r)
{
	*r = (struct recorder){.ops = {.set = record_set, .ctx = r}};
	pthread_mutex_init(&r->lock, NULL);
}

static inline void recorder_fini(struct recorder *r)
{
	pthread_mutex_destroy(&r->lock);
	buf_fini(&r->text);
}

static inline void expect_record(struct recorder *r, const char *want)
{
	cr_expect_str_eq(buf_str(&r->text), want);
	buf_reset(&r->text);
}

#define ARGS_MAX 6

/* Runs it with that state on its input; its message goes to text. */
static inline int hook_run(const struct proc *p, const char *const *args, const char *state,
			   const struct en_limits_ops *ops, char text[600])
{
	char *argv[ARGS_MAX + 1];
	int in[2], out[2], argc = 0, status;
	ssize_t n;

	while (args[argc] != NULL) {
		argv[argc] = strdup(args[argc]);
		argc++;
	}
	cr_assert(pipe(in) == 0 && pipe(out) == 0);
	cr_assert_eq(write(in[1], state, strlen(state)), (ssize_t)strlen(state));
	close(in[1]);
	status = en_hook_main(argc, argv, in[0], out[1], p->root, ops);
	close(out[1]);
	n = read(out[0], text, 599);
	text[n > 0 ? n : 0] = '\0';
	close(in[0]);
	close(out[0]);
	for (int i = 0; i < argc; i++)
		free(argv[i]);
	return status;
}

static inline void state_text(char *text, size_t cap)
{
	snprintf(text, cap,
		 "{\"ociVersion\":\"1.0.2\",\"id\":\"" ID "\",\"pid\":%d,\"bundle\":\"/b\"}",
		 (int)getpid());
}

#endif
