/* Protocol 3 of the fake control daemon: the module-verb commands that the enforcer uses. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "test/lib/fake_mps.h"

#define SERVER "shared"

static int complain(char *out, size_t cap, const char *text)
{
	const char *status = fake_script("error_status", 0);

	fake_print(out, cap, "%s\n", text);
	return status != NULL && status[0] == '1';
}

/* "--key=value" or "key=value" among the arguments; NULL: not there. */
static const char *option(char **args, size_t count, const char *key)
{
	size_t len = strlen(key);

	for (size_t i = 2; i < count; i++) {
		const char *a = args[i];

		if (strncmp(a, "--", 2) == 0)
			a += 2;
		if (strncmp(a, key, len) == 0 && a[len] == '=')
			return a + len + 1;
	}
	return NULL;
}

static bool server_listed(const struct fake_daemon *d)
{
	const char *gpus = fake_script("gpus", 0);
	char present[512], allowed[256], *rest = allowed, *one;

	if (fake_script("no_server", 0) != NULL)
		return false;
	snprintf(present, sizeof(present), ",%s,", gpus != NULL ? gpus : "");
	snprintf(allowed, sizeof(allowed), "%s", d->devices);
	while (gpus != NULL && (one = strsep(&rest, ",")) != NULL) {
		char key[280];

		snprintf(key, sizeof(key), ",%s,", one);
		if (one[0] != '\0' && strstr(present, key) == NULL)
			return false; /* it was made, found no device, and ended */
	}
	return true;
}

static const char *status_text(void)
{
	static char text[32];
	const char *s = fake_script("status", 0);

	snprintf(text, sizeof(text), "%s", s != NULL ? s : "Ready");
	return text;
}

static int server(struct fake_daemon *d, char **args, size_t count, char *out, size_t cap)
{
	if (count < 2 || strcmp(args[1], "list") != 0)
		return complain(out, cap, "Unknown command");
	if (option(args, count, "format") == NULL)
		fake_print(out, cap, "NAME UID PID STATUS PIPE DIRECTORY ALLOWED DEVICES\n");
	if (server_listed(d))
		fake_print(out, cap, SERVER ",0,%d,%s,%s/" SERVER ",%s,-\n", d->server_pid,
			   status_text(), d->pipe_dir, d->devices[0] != '\0' ? "GPU-first" : "-");
	return 0;
}

/* ---- namespaces ---- */

static struct fake_namespace *find(struct fake_daemon *d, const char *name)
{
	for (size_t i = 0; i < d->ns_count; i++) {
		if (strcmp(d->ns[i].name, name) == 0)
			return &d->ns[i];
	}
	return NULL;
}

static bool has_clients(const struct fake_daemon *d, const char *name)
{
	const char *line;
	char ns[128];

	for (size_t i = 0; (line = fake_client(d, i)) != NULL; i++) {
		fake_value(line, "ns", ns, sizeof(ns));
		if (strstr(ns, name) != NULL)
			return true;
	}
	return false;
}

static void print_row(const struct fake_daemon *d, const char *name, int centipercent, char *out,
		      size_t cap)
{
	fake_print(out, cap, "%s," SERVER ",%s,-,", name, status_text());
	if (centipercent < 0)
		fake_print(out, cap, "-");
	else
		fake_print(out, cap, "%d.%02d", centipercent / 100, centipercent % 100);
	if (fake_script("short_rows", 0) == NULL)
		fake_print(out, cap, ",0,%s/" SERVER "/%s", d->pipe_dir, name);
	fake_print(out, cap, "\n");
}

static int list(struct fake_daemon *d, char *out, size_t cap)
{
	const char *line;
	char other[65];

	print_row(d, "default", -1, out, cap);
	for (size_t i = 0; i < d->ns_count; i++)
		print_row(d, d->ns[i].name, d->ns[i].centipercent, out, cap);
	for (size_t i = 0; (line = fake_script("other_ns", i)) != NULL; i++) {
		size_t len = strcspn(line, " ");

		snprintf(other, sizeof(other), "%.*s", len < 64 ? (int)len : 64, line);
		if (find(d, other) == NULL)
			print_row(d, other, (int)strtol(line + len, NULL, 10) * 100, out, cap);
	}
	return 0;
}

static int create(struct fake_daemon *d, const char *name, char *out, size_t cap)
{
	char path[256];

	if (find(d, name) != NULL)
		return complain(out, cap, "Error: namespace already exists");
	if (name[strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_")] != '\0' ||
	    strlen(name) > 64 || d->ns_count == FAKE_NAMES_MAX)
		return complain(out, cap, "Invalid namespace name");
	snprintf(d->ns[d->ns_count].name, sizeof(d->ns[0].name), "%s", name);
	d->ns[d->ns_count++].centipercent = -1;
	snprintf(path, sizeof(path), "%s/" SERVER, d->pipe_dir);
	mkdir(path, 0755);
	snprintf(path, sizeof(path), "%s/" SERVER "/%s", d->pipe_dir, name);
	mkdir(path, 0755);
	return 0;
}

static int set(struct fake_daemon *d, struct fake_namespace *ns, const char *percent, char *out,
	       size_t cap)
{
	double v = percent != NULL ? strtod(percent, NULL) : 0;

	if (has_clients(d, ns->name))
		return complain(out, cap, "Error: namespace has active clients");
	if (v <= 0 || v > 100)
		return complain(out, cap, "Invalid active thread percentage");
	if (fake_script("wrong_cap", 0) == NULL)
		ns->centipercent = (int)(v * 100);
	return 0;
}

static int delete_ns(struct fake_daemon *d, struct fake_namespace *ns, char *out, size_t cap)
{
	char path[256];

	if (has_clients(d, ns->name))
		return complain(out, cap, "Error: namespace has active clients");
	snprintf(path, sizeof(path), "%s/" SERVER "/%s", d->pipe_dir, ns->name);
	rmdir(path);
	*ns = d->ns[--d->ns_count];
	return 0;
}

static int get(const struct fake_daemon *d, const struct fake_namespace *ns, const char *field,
	       char *out, size_t cap)
{
	bool underscore = fake_script("underscore", 0) != NULL;

	if (strcmp(field, underscore ? "pipe_directory" : "pipe-directory") == 0)
		fake_print(out, cap, "%s/" SERVER "/%s\n", d->pipe_dir, ns->name);
	else if (strcmp(field, "active-thread-percentage") == 0)
		fake_print(out, cap, "%d.%02d\n", ns->centipercent / 100, ns->centipercent % 100);
	else
		return complain(out, cap, "Unknown field");
	return 0;
}

static int namespaces(struct fake_daemon *d, char **args, size_t count, char *out, size_t cap)
{
	const char *verb = count > 1 ? args[1] : "", *name = count > 2 ? args[2] : "";
	struct fake_namespace *ns;

	if (!server_listed(d))
		return complain(out, cap, "Server not found");
	if (strcmp(verb, "list") == 0)
		return list(d, out, cap);
	if (strcmp(verb, "create") == 0)
		return create(d, name, out, cap);
	ns = find(d, name);
	if (ns == NULL)
		return complain(out, cap, "Namespace not found");
	if (strcmp(verb, "set") == 0)
		return set(d, ns, option(args, count, "active-thread-percentage"), out, cap);
	if (strcmp(verb, "delete") == 0)
		return delete_ns(d, ns, out, cap);
	if (strcmp(verb, "get") == 0 && count == 5)
		return get(d, ns, args[4], out, cap);
	return complain(out, cap, "Unknown command");
}

/* ---- clients ---- */

static int clients(struct fake_daemon *d, char **args, size_t count, char *out, size_t cap)
{
	const char *line;
	char v[5][128];

	if (count > 1 && strcmp(args[1], "list") == 0) {
		for (size_t i = 0; (line = fake_client(d, i)) != NULL; i++) {
			fake_value(line, "pid", v[0], sizeof(v[0]));
			fake_value(line, "server", v[1], sizeof(v[1]));
			fake_value(line, "device", v[2], sizeof(v[2]));
			fake_value(line, "ns", v[3], sizeof(v[3]));
			fake_value(line, "cmd", v[4], sizeof(v[4]));
			fake_print(out, cap, "%s,%s,%s,%s,%s\n", v[0], v[1], v[2], v[3], v[4]);
		}
		return 0;
	}
	if (count > 2 && strcmp(args[1], "terminate") == 0) {
		if (fake_script("refuse", 0) == NULL && d->ended_count < FAKE_NAMES_MAX)
			d->ended[d->ended_count++] = strtol(args[2], NULL, 10);
		return 0;
	}
	return complain(out, cap, "Unknown command");
}

int fake_v3(struct fake_daemon *d, char **args, size_t count, char *out, size_t cap)
{
	const char *module = count > 0 ? args[0] : "";

	if (strcmp(module, "-q") == 0)
		d->quit = true;
	else if (strcmp(module, "server") == 0)
		return server(d, args, count, out, cap);
	else if (strcmp(module, "namespace") == 0)
		return namespaces(d, args, count, out, cap);
	else if (strcmp(module, "client") == 0)
		return clients(d, args, count, out, cap);
	else
		return complain(out, cap, "Unknown command");
	return 0;
}
