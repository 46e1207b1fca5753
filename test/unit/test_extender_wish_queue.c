/* The order in which wishes for memory limits are looked at. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "extender/wish_queue.h"
#include "test/lib/oom.h"

#define ROOM 7 /* as it is where nothing is said of it */

static struct ex_wishes q;

static void init(void)
{
	q = (struct ex_wishes){.all = NULL};
}

static void fini(void)
{
	ex_wishes_fini(&q);
}

TestSuite(extender_wish_queue, .init = init, .fini = fini);

static void told(const char *uid)
{
	char *text = strdup(uid);

	cr_assert_eq(ex_wishes_tell(&q, uid, &text), 0);
	free(text);
}

/* Each letter is a uid. */
static void all_told(const char *letters)
{
	for (; *letters != '\0'; letters++)
		told((char[]){*letters, '\0'});
}

static void dropped(const char *uid)
{
	struct ex_wish *w = ex_wishes_drop(&q, uid);

	cr_assert_not_null(w);
	ex_wish_free(w);
}

/* The uid of the next one, which is BUSY now; "": none is due. */
static const char *next_of(int64_t now_us, uint64_t room)
{
	struct ex_wish *w = ex_wishes_next(&q, now_us, room);

	return w != NULL ? w->uid : "";
}

/* The next one, which must be due. */
static struct ex_wish *taken(int64_t now_us, uint64_t room)
{
	struct ex_wish *w = ex_wishes_next(&q, now_us, room);

	cr_assert_not_null(w);
	return w;
}

static void expect_next(const char *uids, int64_t now_us, uint64_t room)
{
	char found[200] = "";

	for (const char *uid; (uid = next_of(now_us, room))[0] != '\0';)
		strncat(found, uid, sizeof(found) - strlen(found) - 1);
	cr_expect_str_eq(found, uids);
}

/* The look at it is over. */
static void rests(const char *uid, enum ex_wish_at at, int64_t now_us, uint64_t room)
{
	struct ex_wish *w;

	HASH_FIND_STR(q.all, uid, w);
	cr_assert_not_null(w);
	cr_assert_not_null(ex_wishes_find(&q, uid, w->looked));
	ex_wishes_rest(&q, w, at, now_us, room);
}

Test(extender_wish_queue, who_is_told_is_looked_at_once)
{
	expect_next("", 0, ROOM);
	all_told("abc");
	told("a"); /* which does not send it to the end */
	expect_next("abc", 0, ROOM);
	expect_next("", INT64_MAX, ROOM + 1);
	rests("c", EX_WISH_IDLE, 0, ROOM);
	rests("a", EX_WISH_IDLE, 0, ROOM);
	rests("b", EX_WISH_IDLE, 0, ROOM);
	expect_next("", INT64_MAX, ROOM + 1);
	told("b");
	expect_next("b", 0, ROOM);
}

Test(extender_wish_queue, the_text_is_the_last_that_was_told)
{
	char *text = strdup("one");
	struct ex_wish *w;

	cr_assert_eq(ex_wishes_tell(&q, "a", &text), 0);
	cr_expect_null(text);
	text = strdup("two");
	cr_assert_eq(ex_wishes_tell(&q, "a", &text), 0);
	cr_expect_str_eq(text, "one");
	free(text);
	w = taken(0, ROOM);
	cr_expect_str_eq(w->text, "two");
}

Test(extender_wish_queue, times_at_which_they_are_due)
{
	all_told("abc");
	expect_next("abc", 1000, ROOM);
	rests("a", EX_WISH_LATER, 1000, ROOM);
	rests("b", EX_WISH_SOON, 2000, ROOM);
	rests("c", EX_WISH_SOON, 3000, ROOM);
	expect_next("", 2000 + EX_WISH_SOON_US - 1, ROOM + 1);
	expect_next("b", 2000 + EX_WISH_SOON_US, ROOM);
	expect_next("c", 3000 + EX_WISH_SOON_US, ROOM);
	expect_next("", 1000 + EX_WISH_LATER_US - 1, ROOM);
	expect_next("a", 1000 + EX_WISH_LATER_US, ROOM);
}

Test(extender_wish_queue, room_is_waited_for_until_it_changes)
{
	struct ex_wish *w;

	all_told("ab");
	w = taken(0, ROOM);
	cr_expect_not(w->again, "it was told");
	rests("a", EX_WISH_ROOM, 0, ROOM);
	expect_next("b", 0, ROOM);
	rests("b", EX_WISH_ROOM, 0, ROOM + 1); /* room changed in between */
	expect_next("", INT64_MAX, ROOM);
	w = taken(0, ROOM + 1);
	cr_expect_str_eq(w->uid, "a");
	cr_expect(w->again, "for room alone");
	expect_next("", INT64_MAX, ROOM + 1);
	expect_next("b", 0, ROOM + 2);
	/* Told anew, none waits for room. */
	rests("a", EX_WISH_ROOM, 0, ROOM + 2);
	told("a");
	w = taken(0, ROOM + 2);
	cr_expect_not(w->again);
}

/* In whichever list it waits; the first telling counts as a look. */
Test(extender_wish_queue, the_last_look_longest_ago_comes_first)
{
	all_told("abcd");
	expect_next("abcd", 0, ROOM);
	rests("a", EX_WISH_ROOM, 0, ROOM);
	rests("b", EX_WISH_LATER, 0, ROOM);
	rests("d", EX_WISH_SOON, 0, ROOM);
	rests("c", EX_WISH_IDLE, 0, ROOM);
	all_told("ce");
	expect_next("abcde", EX_WISH_LATER_US, ROOM + 1);
}

/* Others are made and told without an end. */
Test(extender_wish_queue, nobody_waits_for_ever)
{
	char uid[16];

	told("room");
	told("later");
	told("busy");
	expect_next("roomlaterbusy", 0, ROOM);
	rests("room", EX_WISH_ROOM, 0, ROOM);
	rests("later", EX_WISH_LATER, 0, ROOM);
	rests("busy", EX_WISH_IDLE, 0, ROOM);
	for (int i = 0; i < 4; i++) {
		snprintf(uid, sizeof(uid), "new%d", i);
		told(uid);
		told("busy");
	}
	cr_expect_str_eq(next_of(EX_WISH_LATER_US, ROOM + 1), "room");
	told("new0");
	cr_expect_str_eq(next_of(EX_WISH_LATER_US, ROOM + 1), "later");
	expect_next("new0busynew1new2new3", EX_WISH_LATER_US, ROOM + 1);
}

Test(extender_wish_queue, who_is_being_looked_at_is_left_out)
{
	struct ex_wish *w;

	told("a");
	w = taken(0, ROOM);
	cr_expect_not(ex_wish_told_since(w));
	told("a");
	cr_expect(ex_wish_told_since(w));
	expect_next("", INT64_MAX, ROOM + 1);
	/* Whatever came of the look: it was at what is no more. */
	ex_wishes_rest(&q, w, EX_WISH_LATER, 0, ROOM);
	expect_next("a", 0, ROOM);
}

Test(extender_wish_queue, dropped_wherever_it_is)
{
	static const enum ex_wish_at places[] = {EX_WISH_SOON, EX_WISH_LATER, EX_WISH_ROOM,
						 EX_WISH_IDLE};

	cr_expect_null(ex_wishes_drop(&q, "a"));
	all_told("ab");
	dropped("a");
	expect_next("b", 0, ROOM);
	dropped("b");
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		all_told("ab");
		expect_next("ab", 0, ROOM);
		rests("a", places[i], 0, ROOM);
		rests("b", places[i], 0, ROOM);
		dropped("a");
		told("b");
		expect_next("b", INT64_MAX, ROOM + 1);
		dropped("b");
	}
	cr_expect_null(q.all);
}

/* Another wish of the same pod: the old look says nothing of it. */
Test(extender_wish_queue, dropped_while_it_is_looked_at)
{
	struct ex_wish *w;
	uint64_t old;

	told("a");
	w = taken(0, ROOM);
	old = w->looked;
	cr_expect_eq(ex_wishes_find(&q, "a", old), w);
	dropped("a");
	cr_expect_null(ex_wishes_find(&q, "a", old));
	told("a");
	cr_expect_null(ex_wishes_find(&q, "a", old), "it waits");
	w = taken(0, ROOM);
	cr_expect_null(ex_wishes_find(&q, "a", old), "another look is under way");
	cr_expect_eq(ex_wishes_find(&q, "a", w->looked), w);
	cr_expect_null(ex_wishes_find(&q, "b", w->looked));
}

/* All in one list, none due: as many steps as with one. */
Test(extender_wish_queue, steps_do_not_grow_with_those_that_wait)
{
	enum { MANY = 10000 };
	static const enum ex_wish_at places[] = {EX_WISH_SOON, EX_WISH_LATER, EX_WISH_ROOM};
	char uid[16];

	for (int i = 0; i < MANY; i++) {
		snprintf(uid, sizeof(uid), "%d", i);
		told(uid);
	}
	for (int round = 0; round < 4; round++) {
		int64_t now = round * INT64_C(2) * EX_WISH_LATER_US;
		struct ex_wish *w;

		for (int i = 0; i < MANY; i++) {
			w = taken(now, (uint64_t)round);
			snprintf(uid, sizeof(uid), "%d", i);
			cr_assert_str_eq(w->uid, uid, "in the order of their last looks");
			ex_wishes_rest(&q, w, places[i % 3], now, (uint64_t)round);
		}
		cr_assert_null(ex_wishes_next(&q, now, (uint64_t)round));
	}
	cr_expect_leq(q.steps, 4u * (MANY + 1) * EX_WISH_LISTS);
	q.steps = 0;
	cr_assert_null(ex_wishes_next(&q, 0, 3));
	cr_expect_eq(q.steps, 3);
}

Test(extender_wish_queue, without_memory_nothing_changes)
{
	char *text = strdup("one"), *kept = text;

	OOM_SWEEP(n) {
		bool hit;
		int rc;

		oom_fail_at(n);
		rc = ex_wishes_tell(&q, "a", &text);
		hit = oom_disarm();
		if (!hit) {
			cr_assert_eq(rc, 0);
			break;
		}
		cr_assert_eq(rc, ERR_NOMEM);
		cr_assert_eq(text, kept);
		cr_assert_null(ex_wishes_drop(&q, "a"));
		cr_assert_null(ex_wishes_next(&q, INT64_MAX, ROOM));
	}
	free(text);
	expect_next("a", 0, ROOM);
}
