/* The map of a running extender's cluster for a terminal: one line a node, one small bar a GPU. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "kube/object.h"
#include "replay/command.h"
#include "replay/http.h"

#define BAR 8 /* cells of a GPU */
#define NAME_WIDTH 22
#define PRODUCT_WIDTH 12

struct mode_look {
	const char *mode;
	char letter;
	const char *color; /* ANSI */
};

static const struct mode_look looks[] = {
	{"free", ' ', "90"},      {"time-slicing", 'T', "36"}, {"sm-sharing", 'S', "33"},
	{"exclusive", 'W', "35"}, {"mig", 'M', "32"},
};

static const struct mode_look *look_of(const char *mode)
{
	for (size_t i = 0; mode && i < sizeof(looks) / sizeof(looks[0]); i++)
		if (strcmp(looks[i].mode, mode) == 0)
			return &looks[i];
	return &looks[0];
}

static const char *text_of(const cJSON *o, const char *key)
{
	const char *s = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(o, key));

	return s ? s : "";
}

static double number_of(const cJSON *o, const char *key)
{
	const cJSON *v = cJSON_GetObjectItemCaseSensitive(o, key);

	return cJSON_IsNumber(v) ? v->valuedouble : 0;
}

/* Eighths of a cell, so that 1/64 of a GPU shows. */
static void print_bar(double part)
{
	static const char *const eighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
	int n = (int)(part * BAR * 8 + 0.5), width = 0;

	for (; width < BAR && n >= 8; width++, n -= 8)
		fputs("█", stdout);
	if (width < BAR && n > 0) {
		fputs(eighths[n], stdout);
		width++;
	}
	printf("%*s", BAR - width, "");
}

/* A MIG GPU: each unit shows the compute slices of the instance on it, '.' where none is. */
static void print_mig(const cJSON *mig)
{
	char cells[33] = "";
	int units = (int)number_of(mig, "units");
	const cJSON *i;

	units = units < 1 || units > 32 ? BAR : units;
	memset(cells, '.', (size_t)units);
	cJSON_ArrayForEach(i, cJSON_GetObjectItemCaseSensitive(mig, "instances"))
	{
		int start = (int)number_of(i, "start"), size = (int)number_of(i, "units");

		for (int u = start; u >= 0 && u < start + size && u < units; u++)
			cells[u] = text_of(i, "profile")[0];
	}
	printf("%-*s", BAR, cells);
}

static void print_gpu(const cJSON *g, bool color)
{
	const struct mode_look *look = look_of(text_of(g, "mode"));
	const cJSON *mig = cJSON_GetObjectItemCaseSensitive(g, "mig");
	double alloc = number_of(g, "allocatable_mib");
	bool taken = text_of(g, "taken")[0] != 0;

	if (color)
		printf("\033[%sm", taken ? "31" : look->color);
	putchar(taken ? '!' : look->letter);
	putchar('[');
	if (mig)
		print_mig(mig);
	else
		print_bar(alloc > 0 ? number_of(g, "booked_mib") / alloc : 0);
	putchar(']');
	if (color)
		fputs("\033[0m", stdout);
}

static void print_node(const cJSON *n, bool color)
{
	const char *product = text_of(n, "product");
	const cJSON *g;

	if (strncmp(product, "NVIDIA-", 7) == 0 || strncmp(product, "NVIDIA ", 7) == 0)
		product += 7;
	printf("%-*.*s %-*.*s ", NAME_WIDTH, NAME_WIDTH, text_of(n, "name"), PRODUCT_WIDTH,
	       PRODUCT_WIDTH, product);
	cJSON_ArrayForEach(g, cJSON_GetObjectItemCaseSensitive(n, "gpus")) print_gpu(g, color);
	if (!cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(n, "ready")))
		printf(" not ready: %s", text_of(n, "why"));
	if (number_of(n, "fences") > 0)
		fputs(" fenced", stdout);
	putchar('\n');
}

static void print_map(const cJSON *root, int64_t rows)
{
	const cJSON *totals = cJSON_GetObjectItemCaseSensitive(root, "totals");
	const cJSON *modes = cJSON_GetObjectItemCaseSensitive(totals, "gpus_by_mode"), *n;
	bool color = isatty(STDOUT_FILENO);
	double alloc = number_of(totals, "allocatable_mib");
	int64_t shown = 0;

	cJSON_ArrayForEach(n, cJSON_GetObjectItemCaseSensitive(root, "nodes"))
	{
		if (cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(n, "gpus")) == 0)
			continue;
		if (shown++ < rows)
			print_node(n, color);
	}
	if (shown > rows)
		printf("... and %lld more nodes (--rows)\n", (long long)(shown - rows));
	printf("\nT time-slicing  S sm-sharing  W whole  M MIG (digits: compute slices)  ! unhealthy or "
	       "foreign\n%.0f GPUs: %.0f idle, %.0f time-slicing, %.0f sm-sharing, %.0f whole, %.0f MIG; "
	       "%.0f pods; %.1f %% of GPU memory booked\n",
	       number_of(totals, "gpus"), number_of(modes, "free"),
	       number_of(modes, "time-slicing"), number_of(modes, "sm-sharing"),
	       number_of(modes, "exclusive"), number_of(modes, "mig"), number_of(totals, "pods"),
	       alloc > 0 ? 100 * number_of(totals, "booked_mib") / alloc : 0);
}

static int fetch_and_print(const char *url, int64_t rows, struct err *err)
{
	struct rp_http *h = rp_http_new(url, 1);
	struct rp_call *call = h ? rp_http_call(h) : NULL;
	cJSON *root = NULL;
	int rc = ERR_NOMEM;

	if (call) {
		rc = rp_http_start(h, call, "/api/v1/cluster", err);
		if (rc == 0)
			rc = rp_http_wait(h, call, err);
		if (rc == 0 && call->status != 200)
			rc = err_set(err, ERR_IO, "%s/api/v1/cluster: HTTP status %ld%s", url,
				     call->status,
				     call->status == 404 ? " (the address is wanted without the "
							   "prefix of the verbs)"
							 : "");
		if (rc == 0)
			rc = ku_json_parse(call->reply.data, call->reply.len, &root, err);
		if (rc == 0)
			print_map(root, rows);
		cJSON_Delete(root);
		rp_http_give_back(h, call);
	}
	rp_http_free(h);
	return rc;
}

int rp_cmd_map(const struct rp_command *self, int argc, char **argv)
{
	const char *url = NULL;
	int64_t rows = 100;
	const struct rp_option options[] = {
		{"extender", "URL", RP_OPT_TEXT, &url, 0, 0,
		 "where it listens, without the prefix of its verbs: http://127.0.0.1:8080"},
		{"rows", "N", RP_OPT_INTEGER, &rows, 1, 1000000, "nodes shown at most; 100"},
	};
	struct err err = ERR_INIT;
	int status;
	int rc;

	if (!rp_command_options(self, options, sizeof(options) / sizeof(options[0]), argc, argv,
				&status))
		return status;
	if (!url) {
		fprintf(stderr, "tessera-replay map: --extender URL is required\n");
		return RP_EXIT_INPUT;
	}
	rc = fetch_and_print(url, rows, &err);
	if (rc == 0)
		return RP_EXIT_OK;
	rp_command_failed(rc, &err);
	return RP_EXIT_FAILED; /* the network's or the other side's fault, never the input's */
}
