/* Protocol 2 of the fake control daemon, with the quirks measured on releases 535 and 580. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test/lib/fake_mps.h"

static void servers(char *out, size_t cap)
{
	const char *line;

	for (size_t i = 0; (line = fake_script("legacy_server", i)) != NULL; i++)
		fake_print(out, cap, "%s\n", line);
}

static bool is_server(const char *pid)
{
	const char *line;

	for (size_t i = 0; (line = fake_script("legacy_server", i)) != NULL; i++) {
		if (strcmp(line, pid) == 0)
			return true;
	}
	return false;
}

static void clients(const char *server, char *out, size_t cap)
{
	const char *line;
	char pid[32], of[65];

	if (!is_server(server)) {
		fake_print(out, cap, "Server %s not found\n", server);
		return;
	}
	for (size_t i = 0; (line = fake_script("client", i)) != NULL; i++) {
		fake_value(line, "pid", pid, sizeof(pid));
		fake_value(line, "server", of, sizeof(of));
		if (strcmp(of, server) == 0)
			fake_print(out, cap, "%s\n", pid);
	}
}

/* A value out of range leaves the old one, and that is printed, with status 0. */
static void set_percentage(struct fake_daemon *d, const char *text, char *out, size_t cap)
{
	char *end;
	double v = strtod(text, &end);

	if (*end == '\0' && end != text && v > 0 && v <= 100)
		d->v2_centipercent = (int)(v * 100);
	fake_print(out, cap, "%d.%d\n", d->v2_centipercent / 100, d->v2_centipercent / 10 % 10);
}

/* "7" is 7M, "512K" is 512M, "1536M" reads back as 1G, "10GB" is ignored, "0M" is none. */
static void set_limit(struct fake_daemon *d, const char *device, const char *value)
{
	char *end;
	long v = strtol(value, &end, 10);

	if (end == value || (end[0] != '\0' && end[1] != '\0') || strchr("GMK", end[0]) == NULL)
		return;
	for (size_t i = 0; i < 4; i++) {
		if (d->v2_limits[i][0][0] != '\0' && strcmp(d->v2_limits[i][0], device) != 0)
			continue;
		snprintf(d->v2_limits[i][0], sizeof(d->v2_limits[i][0]), "%s", device);
		if (v == 0)
			d->v2_limits[i][1][0] = '\0';
		else if (end[0] == 'G' || v >= 1024)
			snprintf(d->v2_limits[i][1], sizeof(d->v2_limits[i][1]), "%ldG",
				 end[0] == 'G' ? v : v / 1024);
		else
			snprintf(d->v2_limits[i][1], sizeof(d->v2_limits[i][1]), "%ldM", v);
		return;
	}
}

/* By UUID nothing is found, also after it was set so. */
static void get_limit(const struct fake_daemon *d, const char *device, char *out, size_t cap)
{
	for (size_t i = 0; i < 4; i++) {
		if (strcmp(d->v2_limits[i][0], device) == 0 && strncmp(device, "GPU-", 4) != 0 &&
		    d->v2_limits[i][1][0] != '\0')
			fake_print(out, cap, "%s\n", d->v2_limits[i][1]);
	}
}

/* As release 580 does: the client stays listed until its process ends, and a second call for the same client
 * is never answered. */
static void terminate(struct fake_daemon *d, const char *server, long pid, char *out, size_t cap)
{
	const char *line;
	char text[32], of[65];

	for (size_t i = 0; i < d->ended_count; i++) {
		if (d->ended[i] == pid) {
			d->silent = true;
			return;
		}
	}
	for (size_t i = 0; (line = fake_script("client", i)) != NULL; i++) {
		fake_value(line, "pid", text, sizeof(text));
		fake_value(line, "server", of, sizeof(of));
		if (strtol(text, NULL, 10) != pid || strcmp(of, server) != 0)
			continue;
		if (fake_script("refuse", 0) == NULL && d->ended_count < FAKE_NAMES_MAX) {
			d->ended[d->ended_count++] = pid;
			fake_print(out, cap, "0\n");
			return;
		}
	}
	fake_print(out, cap, "Invalid process %ld!\n1\n", pid);
}

void fake_v2(struct fake_daemon *d, char *command, char *out, size_t cap)
{
	char *rest = command, *words[4] = {NULL}, *w;
	const char *status = fake_script("status", 0);
	size_t n = 0;

	while ((w = strsep(&rest, " ")) != NULL && n < 4) {
		if (w[0] != '\0')
			words[n++] = w;
	}
	if (n == 0)
		return;
	if (strcmp(words[0], "quit") == 0)
		d->quit = true;
	else if (strcmp(words[0], "get_server_list") == 0)
		servers(out, cap);
	else if (strcmp(words[0], "get_server_status") == 0 && fake_script("protocol", 0) == NULL)
		fake_print(out, cap, "%s\n", status != NULL ? status : "ACTIVE");
	else if (strcmp(words[0], "get_client_list") == 0 && n == 2)
		clients(words[1], out, cap);
	else if (strcmp(words[0], "get_default_active_thread_percentage") == 0)
		set_percentage(d, "", out, cap);
	else if (strcmp(words[0], "set_default_active_thread_percentage") == 0 && n == 2)
		set_percentage(d, words[1], out, cap);
	else if (strcmp(words[0], "set_default_device_pinned_mem_limit") == 0 && n == 3)
		set_limit(d, words[1], words[2]);
	else if (strcmp(words[0], "get_default_device_pinned_mem_limit") == 0 && n == 2)
		get_limit(d, words[1], out, cap);
	else if (strcmp(words[0], "terminate_client") == 0 && n == 3) {
		terminate(d, words[1], strtol(words[2], NULL, 10), out, cap);
	} else if (strcmp(words[0], "ps") == 0)
		fake_print(out, cap, "Server not found\n");
	else
		fake_print(out, cap, "Unknown command \"%s\"\n", words[0]);
}
