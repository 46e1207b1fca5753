#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "kube/load.h"
#include "test/lib/extender_fixture.h"

struct log_lines {
	struct buf text;
};

static int on_pending(void *ctx, const struct st_pod_spec *pod, struct err *err)
{
	(void)err;
	buf_printf(&((struct log_lines *)ctx)->text, "pending %s;", pod->uid);
	return 0;
}

static int on_bound(void *ctx, const struct st_pod_spec *pod, struct err *err)
{
	(void)err;
	buf_printf(&((struct log_lines *)ctx)->text, "bound %s;", pod->uid);
	return 0;
}

static void on_note(void *ctx, const struct st_pod_spec *pod, const char *text)
{
	buf_printf(&((struct log_lines *)ctx)->text, "note %s %s;", pod->uid, text);
}

static struct log_lines seen;
static struct st_contract_options contract;
static const struct ku_loader loader = {.opt = &contract,
					.on_pending = on_pending,
					.on_bound = on_bound,
					.on_note = on_note,
					.ctx = &seen};

static int load(struct st_cluster *c, struct buf *list, struct err *err)
{
	buf_reset(&seen.text);
	return ku_load_text(c, list->data, list->len, &loader, err);
}

Test(kube_load, pods_may_stand_before_their_nodes)
{
	struct st_cluster *c = st_cluster_new(NULL);
	struct buf b = BUF_INIT;
	struct err err = ERR_INIT;
	const struct st_node *n;

	xf_list_begin(&b);
	xf_pod(&b, (struct xf_pod){.uid = "w",
				   .node = "n",
				   .limits = "\"nvidia.com/gpu\":\"1\",\"cpu\":\"2\""});
	xf_pod(&b, (struct xf_pod){.uid = "p"});
	xf_pod(&b, (struct xf_pod){.uid = "lost", .node = "elsewhere"});
	xf_node(&b, "n", 2, 40960, "A", false);
	buf_puts(
		&b,
		",{\"kind\":\"Pod\",\"metadata\":{\"name\":\"done\",\"namespace\":\"ns\",\"uid\":\"d\"},"
		"\"spec\":{\"nodeName\":\"n\"},\"status\":{\"phase\":\"Succeeded\"}}");
	buf_puts(&b, ",{\"kind\":\"Pod\",\"metadata\":{\"name\":\"bare\",\"namespace\":\"ns\"}}");
	xf_list_end(&b);
	cr_assert_eq(load(c, &b, &err), 0, "%s", err.msg);
	cr_expect_str_eq(
		buf_str(&seen.text),
		"bound w;pending p;note lost its node \"elsewhere\" is not in the list; left out;"
		"pending ns/bare;");
	n = st_cluster_node(c, 0);
	cr_expect_eq(n->gpus[0].mode, ST_MODE_EXCLUSIVE);
	cr_expect_eq(n->gpus[1].mode, ST_MODE_FREE);
	cr_expect_eq(n->cpu_left_milli, 62000);
	cr_expect_eq(st_cluster_pod_count(c), 1);
	cr_expect_eq(st_cluster_check(c, ST_NONE, &err), 0, "%s", err.msg);
	st_cluster_free(c);
	buf_fini(&b);
	buf_fini(&seen.text);
}

Test(kube_load, an_allocation_that_cannot_be_read_fences_its_node)
{
	struct st_cluster *c = st_cluster_new(NULL);
	struct buf b = BUF_INIT;
	struct err err = ERR_INIT;

	xf_list_begin(&b);
	xf_node(&b, "n", 2, 40960, "A", false);
	xf_pod(&b, (struct xf_pod){.uid = "u",
				   .node = "n",
				   .annotations = "\"tessera.dev/allocation\":\"v1;n\""});
	xf_list_end(&b);
	cr_assert_eq(load(c, &b, &err), 0, "%s", err.msg);
	cr_expect(strstr(buf_str(&seen.text), "note u tessera.dev/allocation") != NULL, "%s",
		  seen.text.data);
	cr_expect_eq(st_cluster_node(c, 0)->fences, 1);
	st_cluster_free(c);
	buf_fini(&b);
	buf_fini(&seen.text);
}

static void expect_error(const char *items, const char *want)
{
	struct st_cluster *c = st_cluster_new(NULL);
	struct buf b = BUF_INIT;
	struct err err = ERR_INIT;

	xf_list_begin(&b);
	xf_node(&b, "n", 1, 40960, "A", false);
	buf_puts(&b, items);
	xf_list_end(&b);
	cr_expect_eq(load(c, &b, &err), ERR_INVALID, "%s", items);
	cr_expect(strstr(err.msg, want) != NULL, "%s", err.msg);
	st_cluster_free(c);
	buf_fini(&b);
	buf_fini(&seen.text);
}

Test(kube_load, mistakes_name_their_place)
{
	struct buf b = BUF_INIT;

	xf_node(&b, "n", 1, 40960, "A", false);
	expect_error(buf_str(&b), "items[2].node \"n\" occurs twice");
	buf_reset(&b);
	xf_pod(&b, (struct xf_pod){.uid = "u", .node = "n"});
	xf_pod(&b, (struct xf_pod){.uid = "u", .node = "n"});
	expect_error(buf_str(&b), "items[3].pod uid \"u\" occurs twice");
	expect_error(",{\"kind\":\"Pod\",\"metadata\":{\"name\":7}}", "items[2].metadata.name");
	expect_error(",7", "items[2].");
	buf_fini(&b);
}

Test(kube_load, a_file_is_named_in_the_message)
{
	struct st_cluster *c = st_cluster_new(NULL);
	struct err err = ERR_INIT;

	cr_expect_eq(ku_load_cluster(c, "/nonexistent/x.json", &contract, NULL, NULL, &err),
		     ERR_IO);
	cr_expect_str_eq(err.msg, "/nonexistent/x.json: No such file or directory");
	cr_expect_eq(ku_load_cluster(c, "/dev/null", &contract, NULL, NULL, &err), ERR_INVALID);
	cr_expect_eq(strncmp(err.msg, "/dev/null: ", 11), 0, "%s", err.msg);
	st_cluster_free(c);
}
