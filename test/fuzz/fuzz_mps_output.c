/* What nvidia-cuda-mps-control and nvidia-smi print. The first byte chooses the parser. What is accepted
 * must be terminated, within its bounds, and the same when it is read again; a refusal has a message and
 * leaves the result alone. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "enforcer/hook.h"
#include "enforcer/limits_parse.h"
#include "enforcer/mps_parse.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define ROWS 4

static void check(int ok)
{
	if (!ok)
		abort();
}

static void check_text(const char *s, size_t cap)
{
	check(memchr(s, '\0', cap) != NULL);
}

static void check_name(const char *s)
{
	check_text(s, EN_MPS_NAME_CAP);
	check(s[0] != '\0' && s[strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789_")] == '\0');
}

static size_t stored(size_t count)
{
	return count < ROWS ? count : ROWS;
}

static int servers(const char *text, size_t len, struct err *err)
{
	struct en_mps_server rows[ROWS];
	size_t count = 77;
	int r = mps_parse_servers(text, len, rows, ROWS, &count, err);

	for (size_t i = 0; r == 0 && i < stored(count); i++) {
		check_name(rows[i].name);
		check_text(rows[i].status, sizeof(rows[i].status));
		check_text(rows[i].dir, sizeof(rows[i].dir));
		check(rows[i].pid >= 0 && rows[i].status[0] != '\0');
		check(rows[i].dir[0] == '\0' || rows[i].dir[0] == '/');
		(void)mps_status_kind(rows[i].status, "a,b,ready");
	}
	check(r == 0 || count == 77);
	return r;
}

static int namespaces(const char *text, size_t len, struct err *err)
{
	struct en_mps_namespace rows[ROWS];
	size_t count = 77;
	int r = mps_parse_namespaces(text, len, rows, ROWS, &count, err);

	for (size_t i = 0; r == 0 && i < stored(count); i++) {
		check_name(rows[i].name);
		check_name(rows[i].server);
		check_text(rows[i].dir, sizeof(rows[i].dir));
		check(rows[i].centipercent >= -1 && rows[i].centipercent <= 10000);
	}
	check(r == 0 || count == 77);
	return r;
}

/* A row that was accepted, written again, is the same row. */
static void client_again(const struct en_mps_client *c)
{
	struct en_mps_client again;
	char line[512];
	size_t count = 0;
	int n = snprintf(line, sizeof(line), "%lld,%s,%s,%s", (long long)c->pid, c->server,
			 c->device, c->ns);

	check(mps_parse_clients(line, (size_t)n, &again, 1, &count, NULL) == 0 && count == 1);
	check(again.pid == c->pid && strcmp(again.server, c->server) == 0 &&
	      strcmp(again.device, c->device) == 0 && strcmp(again.ns, c->ns) == 0);
}

static int clients(const char *text, size_t len, struct err *err)
{
	struct en_mps_client rows[ROWS];
	size_t count = 77;
	int r = mps_parse_clients(text, len, rows, ROWS, &count, err);

	for (size_t i = 0; r == 0 && i < stored(count); i++) {
		check_name(rows[i].server);
		check_name(rows[i].ns);
		check_text(rows[i].device, sizeof(rows[i].device));
		check_text(rows[i].command, sizeof(rows[i].command));
		check(rows[i].pid >= 0);
		client_again(&rows[i]);
	}
	check(r == 0 || count == 77);
	return r;
}

static int numbers(const char *text, size_t len, struct err *err)
{
	int64_t pids[ROWS];
	size_t count = 77;
	int r = mps_parse_pids(text, len, pids, ROWS, &count, err);

	for (size_t i = 0; r == 0 && i < stored(count); i++)
		check(pids[i] >= 0);
	check(r == 0 || count == 77);
	return r;
}

static int percent(const char *text, size_t len, struct err *err)
{
	int32_t v = -7;
	int r = mps_parse_percent(text, len, &v, err);

	check(r == 0 ? v >= 0 && v <= 10000 : v == -7);
	return r;
}

static int value(const char *text, size_t len, struct err *err)
{
	char v[16] = "unchanged";
	int r = mps_parse_value(text, len, v, sizeof(v), err);

	check_text(v, sizeof(v));
	check(r == 0 ? v[0] != '\0' && strchr(v, '\n') == NULL : strcmp(v, "unchanged") == 0);
	return r;
}

static int limits(const char *text, size_t len, struct err *err)
{
	struct limits_seen seen = {.soft_mib = -7}, again;
	char line[256];
	int r = limits_parse(text, len, &seen, err), n;

	if (r != 0) {
		check(seen.soft_mib == -7);
		return r;
	}
	check(seen.soft_mib >= 0 && seen.hard_mib >= 0 && seen.used_mib >= 0);
	n = snprintf(line, sizeof(line),
		     "soft limit: %lld MiB\ncurrent used: %lld MiB\nhard limit: ",
		     (long long)seen.soft_mib, (long long)seen.used_mib);
	if (seen.hard_mib == EN_LIMIT_NONE)
		n += snprintf(line + n, sizeof(line) - (size_t)n, "max");
	else
		n += snprintf(line + n, sizeof(line) - (size_t)n, "%lld MiB",
			      (long long)seen.hard_mib);
	check(limits_parse(line, (size_t)n, &again, NULL) == 0);
	check(memcmp(&again, &seen, sizeof(seen)) == 0);
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static int (*const parsers[])(const char *text, size_t len, struct err *err) = {
		servers, namespaces, clients, numbers, percent, value, limits};
	struct err err = ERR_INIT;
	char *text;
	int r;

	if (size == 0)
		return 0;
	text = malloc(size); /* exact size: a read past the end is seen */
	if (text == NULL)
		abort();
	memcpy(text, data + 1, size - 1);
	r = parsers[data[0] % (sizeof(parsers) / sizeof(parsers[0]))](text, size - 1, &err);
	check(r <= 0 && (r < 0) == (err.msg[0] != '\0'));
	(void)mps_is_complaint(text, size - 1);
	free(text);
	return 0;
}
