#include "test/lib/contract_rows.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

void contract_rows_check(const struct contract_row *rows, size_t count,
			 const struct st_contract_options *opt)
{
	for (size_t i = 0; i < count; i++) {
		const struct contract_row *row = &rows[i];
		struct st_request req, untouched;
		struct st_warnings warn;
		struct err err = ERR_INIT;
		struct pod_text p;
		char text[1024], got[1024];
		int r;

		memset(&req, 0x5a, sizeof(req));
		untouched = req;
		pod_text_init(&p, row->annotations, row->containers);
		r = st_contract_parse(&p.spec, opt, &req, &warn, &err);
		snprintf(got, sizeof(got), "%s%s", r == 0 ? "" : "!",
			 r == 0 ? request_text(&req, text, sizeof(text)) : err.msg);
		cr_expect_str_eq(got, row->want, "row %zu (%s):\n got %s\nwant %s", i,
				 row->annotations, got, row->want);
		if (r != 0) {
			cr_expect(r == ERR_INVALID || r == ERR_RANGE, "row %zu: code %d", i, r);
			/* Bytes that nobody wrote. NOLINTNEXTLINE(bugprone-suspicious-memory-comparison) */
			cr_expect_eq(memcmp(&req, &untouched, sizeof(req)), 0, "row %zu: written",
				     i);
			continue;
		}
		if (row->warning == NULL)
			cr_expect_eq(warn.count, 0, "row %zu: warning %s", i, warn.text[0].msg);
		else
			cr_expect(warn.count > 0 && strstr(warn.text[0].msg, row->warning),
				  "row %zu: %zu warnings, \"%s\"", i, warn.count,
				  warn.count > 0 ? warn.text[0].msg : "");
		cr_expect_eq(st_contract_parse(&p.spec, opt, &req, NULL, NULL), 0);
	}
}
