/* What is ours, remembered for the next agent: a line for each instance, one for each that is about to be made, and
 * one for each GPU whose mode was switched. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/quantity.h"
#include "enforcer/mig_internal.h"

#define FILE_MAX ((size_t)1 << 20)

bool mig_save(struct en_mig *m)
{
	struct buf b = BUF_INIT;
	struct err err = ERR_INIT;
	char quoted[ERR_MSG_CAP];
	bool ok;

	if (m->path == NULL)
		return true;
	buf_puts(&b, "");
	for (size_t i = 0; i < m->own_count; i++) {
		const struct mig_own *o = &m->own[i];

		if (o->at.uuid[0] == '\0')
			buf_printf(&b, "making %s %u %u %u\n", o->gpu, o->at.profile_id,
				   o->at.at.start, o->at.at.size);
		else
			buf_printf(&b, "instance %s %u %u %u %u %s\n", o->gpu, o->at.id,
				   o->at.profile_id, o->at.at.start, o->at.at.size, o->at.uuid);
	}
	for (size_t i = 0; i < m->mode_count; i++)
		buf_printf(&b, "mode %s\n", m->modes[i].gpu);
	ok = buf_ok(&b) && file_replace(m->path, b.len > 0 ? b.data : "", b.len, &err) == 0;
	if (!ok)
		log_event(m->o.log, LOG_LEVEL_WARN, "mig-not-remembered", "reason=%s",
			  log_quote(err.msg, quoted, sizeof(quoted)));
	buf_fini(&b);
	return ok;
}

static bool load_number(char **at, unsigned *ret)
{
	const char *word = strsep(at, " ");
	int64_t v;

	if (word == NULL || integer_parse(word, 0, UINT32_MAX, &v, NULL) != 0)
		return false;
	*ret = (unsigned)v;
	return true;
}

static bool load_text(char **at, char *ret, size_t cap)
{
	const char *word = strsep(at, " ");

	return word != NULL && word[0] != '\0' && (size_t)snprintf(ret, cap, "%s", word) < cap;
}

/* A line that is none of ours is left out. */
static void load_line(struct en_mig *m, char *line)
{
	const char *what = strsep(&line, " ");
	struct mig_own o = {0};
	struct mig_mode mode = {0};

	if (line == NULL)
		return;
	if (strcmp(what, "instance") == 0 && m->own_count < MIG_OWN_MAX &&
	    load_text(&line, o.gpu, sizeof(o.gpu)) && load_number(&line, &o.at.id) &&
	    load_number(&line, &o.at.profile_id) && load_number(&line, &o.at.at.start) &&
	    load_number(&line, &o.at.at.size) && load_text(&line, o.at.uuid, sizeof(o.at.uuid)))
		m->own[m->own_count++] = o;
	else if (strcmp(what, "making") == 0 && m->own_count < MIG_OWN_MAX &&
		 load_text(&line, o.gpu, sizeof(o.gpu)) && load_number(&line, &o.at.profile_id) &&
		 load_number(&line, &o.at.at.start) && load_number(&line, &o.at.at.size))
		m->own[m->own_count++] = o;
	else if (strcmp(what, "mode") == 0 && m->mode_count < ST_GPUS_MAX &&
		 load_text(&line, mode.gpu, sizeof(mode.gpu)))
		m->modes[m->mode_count++] = mode;
}

/* What is not so any more is found out by the first look at the driver: en_mig_mark(). */
void mig_load(struct en_mig *m)
{
	char *text = NULL, *at, *line;
	size_t len;

	if (m->path == NULL || file_read(m->path, FILE_MAX, &text, &len, NULL) != 0)
		return;
	at = text;
	while ((line = strsep(&at, "\n")) != NULL)
		load_line(m, line);
	free(text);
}
