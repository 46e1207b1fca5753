#include "test/lib/oom.h"

#include <errno.h>
#include <stddef.h>

/* Names made by the linker's --wrap: __real_x is the library's x, our calls of x go to __wrap_x. */
/* NOLINTBEGIN(bugprone-reserved-identifier): the linker gives these names */
void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t size);
void *__real_reallocarray(void *p, size_t n, size_t size);
char *__real_strdup(const char *s);
char *__real_strndup(const char *s, size_t n);

void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t size);
void *__wrap_reallocarray(void *p, size_t n, size_t size);
char *__wrap_strdup(const char *s);
char *__wrap_strndup(const char *s, size_t n);

static _Thread_local struct {
	unsigned count;
	unsigned fail_at; /* 0: never */
	bool sticky;
	bool hit;
} oom;

static bool fails(void)
{
	oom.count++;
	if (oom.fail_at == 0)
		return false;
	if (oom.count != oom.fail_at && !(oom.sticky && oom.count > oom.fail_at))
		return false;
	oom.hit = true;
	errno = ENOMEM;
	return true;
}

void *__wrap_malloc(size_t size)
{
	return fails() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t n, size_t size)
{
	return fails() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t size)
{
	return fails() ? NULL : __real_realloc(p, size);
}

void *__wrap_reallocarray(void *p, size_t n, size_t size)
{
	return fails() ? NULL : __real_reallocarray(p, n, size);
}

char *__wrap_strdup(const char *s)
{
	return fails() ? NULL : __real_strdup(s);
}

char *__wrap_strndup(const char *s, size_t n)
{
	return fails() ? NULL : __real_strndup(s, n);
}
/* NOLINTEND(bugprone-reserved-identifier) */

static void arm(unsigned n, bool sticky)
{
	oom.count = 0;
	oom.fail_at = n;
	oom.sticky = sticky;
	oom.hit = false;
}

void oom_fail_at(unsigned n)
{
	arm(n, false);
}

void oom_fail_from(unsigned n)
{
	arm(n, true);
}

bool oom_disarm(void)
{
	bool hit = oom.hit;

	oom.fail_at = 0;
	oom.hit = false;
	return hit;
}

unsigned oom_count(void)
{
	return oom.count;
}
