#include "replay/stats.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/strpool.h"

#define TEXTS_MAX 1000

void rp_times_fini(struct rp_times *t)
{
	free(t->us);
	*t = (struct rp_times){0};
}

int rp_times_add(struct rp_times *t, int64_t us, struct err *err)
{
	if (t->count == t->cap) {
		size_t cap = t->cap > 0 ? 2 * t->cap : 1024;
		uint32_t *more = reallocarray(t->us, cap, sizeof(*more));

		if (more == NULL)
			return err_set(err, ERR_NOMEM, "out of memory");
		t->us = more;
		t->cap = cap;
	}
	t->us[t->count++] = us < 0 ? 0 : us > UINT32_MAX ? UINT32_MAX : (uint32_t)us;
	return 0;
}

static int compare_us(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

int64_t rp_times_at(struct rp_times *t, unsigned permille)
{
	size_t rank;

	if (t->count == 0)
		return 0;
	qsort(t->us, t->count, sizeof(*t->us), compare_us);
	rank = (t->count * permille + 999) / 1000;
	return t->us[rank > 0 ? rank - 1 : 0];
}

struct rp_tally {
	struct strpool *texts;
	struct rp_tally_row *rows; /* by id */
	uint64_t *marks;
	struct rp_tally_row *sorted;
};

struct rp_tally *rp_tally_new(void)
{
	struct rp_tally *t = calloc(1, sizeof(*t));

	if (t == NULL)
		return NULL;
	t->texts = strpool_new();
	t->rows = calloc(TEXTS_MAX + 1, sizeof(*t->rows));
	t->marks = calloc(TEXTS_MAX + 1, sizeof(*t->marks));
	t->sorted = calloc(TEXTS_MAX + 1, sizeof(*t->sorted));
	if (t->texts == NULL || t->rows == NULL || t->marks == NULL || t->sorted == NULL) {
		rp_tally_free(t);
		return NULL;
	}
	return t;
}

void rp_tally_free(struct rp_tally *t)
{
	if (t == NULL)
		return;
	strpool_free(t->texts);
	free(t->rows);
	free(t->marks);
	free(t->sorted);
	free(t);
}

int rp_tally_add(struct rp_tally *t, const char *text, int64_t weight, uint64_t mark,
		 struct err *err)
{
	uint32_t id = strpool_find(t->texts, text, strlen(text));

	if (id == STRPOOL_NONE) {
		if (strpool_count(t->texts) >= TEXTS_MAX)
			text = "(other texts)";
		id = strpool_intern(t->texts, text, strlen(text));
	}
	if (id == STRPOOL_NONE)
		return err_set(err, ERR_NOMEM, "out of memory");
	if (t->rows[id].pods == 0 || t->marks[id] != mark)
		t->rows[id].pods++;
	t->rows[id].text = strpool_str(t->texts, id);
	t->rows[id].weight += weight;
	t->marks[id] = mark;
	return 0;
}

static int compare_rows(const void *a, const void *b)
{
	const struct rp_tally_row *x = a, *y = b;

	if (x->weight != y->weight)
		return x->weight > y->weight ? -1 : 1;
	return strcmp(x->text, y->text);
}

size_t rp_tally_rows(struct rp_tally *t, const struct rp_tally_row **ret)
{
	size_t count = strpool_count(t->texts);

	memcpy(t->sorted, t->rows, count * sizeof(*t->sorted));
	qsort(t->sorted, count, sizeof(*t->sorted), compare_rows);
	*ret = t->sorted;
	return count;
}
