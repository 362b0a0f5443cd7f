# make install, make uninstall, make deb.
#
# PREFIX   where programs go (/usr/local); DESTDIR is put before everything, for packages
# HELPERS  where mount(8) and fsck(8) look for mount.TYPE and fsck.TYPE: /sbin, whatever PREFIX is
# BINARY   what is installed (target/release/yore)

PREFIX ?= /usr/local
HELPERS ?= $(shell [ -L /sbin ] && echo /usr/sbin || echo /sbin)
BINARY ?= $(or $(CARGO_TARGET_DIR),target)/release/yore
INSTALL ?= install
bindir := $(PREFIX)/bin
libexecdir := $(PREFIX)/libexec/yore
unitdir := $(PREFIX)/lib/systemd/system
share := $(PREFIX)/share
manual := $(share)/man
helper_names := mount.yore mount.fuse.yore fsck.yore fsck.fuse.yore
complete := bash-completion/completions/yore zsh/site-functions/_yore fish/vendor_completions.d/yore.fish
units := yore@.service yore-check@.service yore-check@.timer yore-scrub@.service yore-scrub@.timer
scripts := check-volume scrub-volume

install:
	@[ -x "$(BINARY)" ] || { echo 'there is no $(BINARY) yet: run make first' >&2; exit 1; }
	$(INSTALL) -d $(addprefix $(DESTDIR),$(bindir) $(HELPERS) $(libexecdir) $(unitdir) $(manual)/man1 $(manual)/man8 \
		$(addprefix $(share)/,$(dir $(complete))))
	$(INSTALL) -s -m 755 "$(BINARY)" "$(DESTDIR)$(bindir)/yore"
	for name in $(helper_names); do ln -sfn "$(bindir)/yore" "$(DESTDIR)$(HELPERS)/$$name" || exit; done
	for unit in $(units); do \
		from=packaging/systemd/$$unit; [ -e $$from ] || from=$$from.in; \
		sed 's|@BINDIR@|$(bindir)|g; s|@LIBEXECDIR@|$(libexecdir)|g' $$from >"$(DESTDIR)$(unitdir)/$$unit" || exit; \
	done
	for script in $(scripts); do \
		sed 's|@BINDIR@|$(bindir)|g' packaging/$$script.in >"$(DESTDIR)$(libexecdir)/$$script" && \
		chmod 755 "$(DESTDIR)$(libexecdir)/$$script" || exit; \
	done
	"$(BINARY)" man --directory "$(DESTDIR)$(manual)/man1"
	for name in mount.yore mount.fuse.yore; do echo '.so man1/yore-mount.1' >"$(DESTDIR)$(manual)/man8/$$name.8" || exit; done
	for name in fsck.yore fsck.fuse.yore; do echo '.so man1/yore-check.1' >"$(DESTDIR)$(manual)/man8/$$name.8" || exit; done
	"$(BINARY)" completions bash >"$(DESTDIR)$(share)/bash-completion/completions/yore"
	"$(BINARY)" completions zsh >"$(DESTDIR)$(share)/zsh/site-functions/_yore"
	"$(BINARY)" completions fish >"$(DESTDIR)$(share)/fish/vendor_completions.d/yore.fish"

uninstall:
	rm -f "$(DESTDIR)$(bindir)/yore" $(addprefix "$(DESTDIR)$(HELPERS)"/,$(helper_names)) \
		$(addprefix "$(DESTDIR)$(unitdir)"/,$(units)) $(addprefix "$(DESTDIR)$(share)"/,$(complete)) \
		"$(DESTDIR)$(manual)"/man1/yore.1 "$(DESTDIR)$(manual)"/man1/yore-*.1 \
		$(addsuffix .8,$(addprefix "$(DESTDIR)$(manual)/man8"/,$(helper_names)))
	rm -rf "$(DESTDIR)$(libexecdir)"

# cargo-deb, from crates.io, is put below target/tools by scripts/install-deps.sh.
deb: export PATH := $(abspath $(or $(CARGO_TARGET_DIR),target))/tools/bin:$(PATH)
deb:
	rm -rf target/package
	$(MAKE) install DESTDIR=target/package PREFIX=/usr HELPERS=/usr/sbin BINARY="$(BINARY)"
	$(CARGO) deb -p yore-cli --no-build --no-strip --locked --output target/debian/yore.deb
