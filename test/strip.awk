# Prints C text as "file:line:code" without comments and without what stands in string and character
# literals, for the checks that search for words. Line numbers stay right.
FNR == 1 { in_comment = 0 }
{
	out = ""
	line = $0
	while (line != "") {
		if (in_comment) {
			end = index(line, "*/")
			if (!end) {
				line = ""
				break
			}
			line = substr(line, end + 2)
			in_comment = 0
			continue
		}
		if (!match(line, /\/\*|\/\/|"|'/)) {
			out = out line
			break
		}
		out = out substr(line, 1, RSTART - 1)
		token = substr(line, RSTART, RLENGTH)
		line = substr(line, RSTART + RLENGTH)
		if (token == "/*") {
			in_comment = 1
			out = out " "
		} else if (token == "//") {
			break
		} else {
			# Up to the closing quote; an escaped character never closes.
			while (line != "") {
				c = substr(line, 1, 1)
				line = substr(line, c == "\\" ? 3 : 2)
				if (c == token)
					break
			}
			out = out token token
		}
	}
	if (out ~ /[^ \t]/)
		print FILENAME ":" FNR ":" out
}
