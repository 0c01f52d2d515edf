'use strict';
// The built-in protection inside write roots, decided from names: the same as agentbox.guard.kernel.protected, whose tables these are.
// Touches the file system by `exists` alone, which tells whether a path is there.

// <!-- generated: protected names in JavaScript -->
const REASONS = {"hook": "git runs what is in hooks", "folder": "other programs run or obey what is in this folder", "file": "other programs run or obey this file when they start", "config": "git configuration can name programs to run, so only a whole new file may take its place, as git does", "builtin": "; it is protected unless a write: rule names it"};
const TABLES = {
  __proto__: null,
  folders: [".aider", ".amazonq", ".augment", ".bash_it", ".bashrc.d", ".byobu", ".claude", ".cline", ".clinerules", ".codex", ".continue", ".cursor", ".devcontainer", ".elvish", ".emacs.d", ".fleet", ".fluxbox", ".gemini", ".githooks", ".gnupg", ".goose", ".helix", ".husky", ".i3", ".idea", ".ipython", ".junie", ".jupyter", ".kiro", ".nvim", ".oh-my-bash", ".oh-my-zsh", ".opencode", ".openhands", ".password-store", ".qwen", ".roo", ".ssh", ".theia", ".tmux", ".trae", ".vim", ".vnc", ".vs", ".vscode", ".windsurf", ".xmonad", ".zed", ".zprezto", ".zsh", ".zshrc.d"],
  files: [".aider.conf.yml", ".autoenv", ".autoenv.zsh", ".bash_aliases", ".bash_completion", ".bash_login", ".bash_logout", ".bash_profile", ".bashrc", ".byebugrc", ".claude.json", ".clinerules", ".cshrc", ".curlrc", ".cursorrules", ".devcontainer.json", ".dir-locals-2.el", ".dir-locals.el", ".direnvrc", ".duckdbrc", ".emacs", ".emacs.el", ".envrc", ".erlang", ".exrc", ".fetchmailrc", ".forward", ".fzf.bash", ".fzf.zsh", ".gdbearlyinit", ".gdbinit", ".ghci", ".git-credentials", ".gitk", ".gnuplot", ".goosehints", ".guile", ".gvimrc", ".hgrc", ".ideavimrc", ".iex.exs", ".inputrc", ".irbrc", ".k5login", ".kateproject", ".kshrc", ".lessfilter", ".lesskey", ".lftprc", ".lldbinit", ".login", ".login_conf", ".logout", ".lvimrc", ".mailcap", ".mailrc", ".mbsyncrc", ".mcp.json", ".mise.local.toml", ".mise.toml", ".mkshrc", ".mongorc.js", ".mongoshrc.js", ".msmtprc", ".muttrc", ".my.cnf", ".nanorc", ".netrc", ".nvim.lua", ".nvimrc", ".ocamlinit", ".octaverc", ".p10k.zsh", ".pam_environment", ".pdbrc", ".pdbrc.py", ".perldb", ".pgpass", ".procmailrc", ".profile", ".pryrc", ".psqlrc", ".psysh.php", ".pypirc", ".pythonrc", ".pythonrc.py", ".renviron", ".rhosts", ".roomodes", ".rprofile", ".rtx.toml", ".sbclrc", ".screenrc", ".shosts", ".shrc", ".sqliterc", ".tclshrc", ".tcshrc", ".terraformrc", ".tigrc", ".tmux.conf", ".tool-versions", ".vimrc", ".wezterm.lua", ".wgetrc", ".windsurfrules", ".wishrc", ".xbindkeysrc", ".xinitrc", ".xonshrc", ".xprofile", ".xserverrc", ".xsession", ".xsessionrc", ".yash_profile", ".yashrc", ".ycm_extra_conf.py", ".zcompdump", ".zimrc", ".zlogin", ".zlogin.zwc", ".zlogout", ".zlogout.zwc", ".zpreztorc", ".zprofile", ".zprofile.zwc", ".zshenv", ".zshenv.zwc", ".zshrc", ".zshrc.zwc", "agentbox.policy", "mcp.json", "mise.local.toml", "mise.toml", "opencode.json", "opencode.jsonc"],
  endings: [".code-workspace", ".sublime-project"],
  innerFolders: [".aws/cli", ".config/alacritty", ".config/autostart", ".config/awesome", ".config/bspwm", ".config/code", ".config/code - oss", ".config/containers", ".config/cursor", ".config/direnv", ".config/elvish", ".config/emacs", ".config/environment.d", ".config/fish", ".config/foot", ".config/gcloud", ".config/gdb", ".config/gh", ".config/ghostty", ".config/goose", ".config/helix", ".config/hg", ".config/hypr", ".config/i3", ".config/jetbrains", ".config/jj", ".config/kak", ".config/kitty", ".config/lazygit", ".config/lf", ".config/micro", ".config/mise", ".config/mpv", ".config/nano", ".config/nushell", ".config/nvim", ".config/opencode", ".config/pip", ".config/plasma-workspace", ".config/polybar", ".config/powershell", ".config/ranger", ".config/rclone", ".config/sublime-text", ".config/sway", ".config/sxhkd", ".config/systemd", ".config/tmux", ".config/vifm", ".config/vim", ".config/vscodium", ".config/waybar", ".config/wezterm", ".config/xonsh", ".config/yazi", ".config/zed", ".config/zellij", ".config/zsh", ".docker/cli-plugins", ".gradle/init.d", ".julia/config", ".kde/autostart", ".kde4/autostart"],
  innerFiles: [".aws/config", ".aws/credentials", ".config/mise.toml", ".config/starship.toml", ".docker/config.json", ".gradle/init.gradle", ".gradle/init.gradle.kts", ".hg/hgrc", ".hg/hgrc-not-shared", ".hg/sharedpath", ".jj/repo/config.toml", ".kube/config", ".kube/kuberc", ".mise/config.local.toml", ".mise/config.toml", ".pijul/config", "_darcs/prefs/defaults", "mise/config.toml"],
  ownModules: ["agentbox", "agentbox/__init__", "agentbox/cli", "agentbox/cli/__init__"],
  moduleEndings: [".py", ".pyc", ".so"],
  homeFolders: [".asdf", ".aws", ".azure", ".bun/bin", ".cargo/bin", ".config/chromium", ".config/google-chrome", ".deno/bin", ".docker", ".gradle", ".kube", ".local/bin", ".local/lib", ".local/share/applications", ".local/share/bash-completion", ".local/share/dbus-1", ".local/share/fish", ".local/share/gnome-shell", ".local/share/keyrings", ".local/share/nvim", ".local/share/systemd", ".m2", ".mozilla", ".nvm", ".pyenv", ".rbenv", ".rustup", ".sdkman", ".thunderbird", "library/launchagents"],
  homeFiles: [".bundle/config", ".bunfig.toml", ".cabal/config", ".cargo/config", ".cargo/config.toml", ".cargo/credentials.toml", ".cargo/env", ".condarc", ".gemrc", ".npmrc", ".pip/pip.conf", ".pnpmfile.cjs", ".pydistutils.cfg", ".stack/config.yaml", ".yarnrc", ".yarnrc.yml"],
  vendored: ["dist-packages", "node_modules", "site-packages"],
  ignored: ["\u00ad", "\u034f", "\u061c", "\u115f", "\u1160", "\u17b4", "\u17b5", "\u180b", "\u180c", "\u180d", "\u180e", "\u180f", "\u200b", "\u200c", "\u200d", "\u200e", "\u200f", "\u202a", "\u202b", "\u202c", "\u202d", "\u202e", "\u2060", "\u2061", "\u2062", "\u2063", "\u2064", "\u2065", "\u2066", "\u2067", "\u2068", "\u2069", "\u206a", "\u206b", "\u206c", "\u206d", "\u206e", "\u206f", "\u3164", "\ufe00", "\ufe01", "\ufe02", "\ufe03", "\ufe04", "\ufe05", "\ufe06", "\ufe07", "\ufe08", "\ufe09", "\ufe0a", "\ufe0b", "\ufe0c", "\ufe0d", "\ufe0e", "\ufe0f", "\ufeff", "\uffa0", "\ufff0", "\ufff1", "\ufff2", "\ufff3", "\ufff4", "\ufff5", "\ufff6", "\ufff7", "\ufff8", "\ud82f\udca0", "\ud82f\udca1", "\ud82f\udca2", "\ud82f\udca3", "\ud834\udd73", "\ud834\udd74", "\ud834\udd75", "\ud834\udd76", "\ud834\udd77", "\ud834\udd78", "\ud834\udd79", "\ud834\udd7a"],
};
// <!-- /generated -->

/** `lifting`: [root, parts] of write rules without wildcards; `exempt`: trees with a slash at the end; `homes`: folded home folders. */
module.exports = function makeProtection(p, exists, { lifting, exempt, homes }) {
  const sets = { __proto__: null };
  const names = p.keys(TABLES);
  for (let i = 0; i < names.length; i += 1) sets[names[i]] = p.setOf(TABLES[names[i]]);
  const has = (table, text) => p.setHas(sets[table], text);

  function endsWithAny(text, endings) {
    for (let i = 0; i < endings.length; i += 1) if (p.endsWith(text, endings[i])) return true;
    return false;
  }

  /** The path as a file system without letter case compares it. */
  function folded(path) {
    let kept = '';
    for (let at = 0; at < path.length;) {
      const point = p.codePointAt(path, at);
      at += point > 0xffff ? 2 : 1;
      const char = p.fromCodePoint(point);
      if (point < 0x80 || !(has('ignored', char) || (point >= 0xe0000 && point <= 0xe0fff))) kept += char;
    }
    return p.toLowerCase(p.toUpperCase(p.toLowerCase(kept))); // as casefold, for all that comes to be ASCII
  }

  function split(path) {
    const made = [];
    let from = 0;
    for (let at = p.indexOf(path, '/'); at >= 0; at = p.indexOf(path, '/', from)) {
      p.push(made, p.slice(path, from, at));
      from = at + 1;
    }
    p.push(made, p.slice(path, from));
    return made;
  }

  /** The parts from one to before another, joined. */
  function joined(parts, from, to) {
    let made = '';
    for (let i = from < 0 ? 0 : from; i < to; i += 1) made = made === '' && i === (from < 0 ? 0 : from) ? parts[i] : `${made}/${parts[i]}`;
    return made;
  }

  /** Whether git could take a folder for a git directory (gitrepository-layout(5)). */
  function isRepository(folder, name) {
    if (p.endsWith(name, '.git') || (exists(`${folder}/objects`) && exists(`${folder}/refs`))) return true;
    return exists(`${folder}/HEAD`) && exists(`${folder}/commondir`);
  }

  function isOwnModule(parts) {
    const last = parts.length - 1;
    const name = parts[last];
    if (!endsWithAny(name, TABLES.moduleEndings)) return false;
    const stem = p.slice(name, 0, p.indexOf(name, '.'));
    return has('ownModules', stem) || has('ownModules', `${parts[last - 1]}/${stem}`)
      || has('ownModules', `${parts[last - 2]}/${parts[last - 1]}/${stem}`);
  }

  function homePlace(parts, beyond) {
    const last = parts.length - 1;
    for (let i = 0; i < homes.length; i += 1) {
      const top = split(homes[i]).length;
      if (joined(parts, 0, top) !== homes[i]) continue;
      for (let at = top; at < top + 3 && at <= last; at += 1) {
        const name = joined(parts, top, at + 1);
        if (at < last && at > beyond && has('homeFolders', name)) return [at, REASONS.folder];
        if (at === last && at > beyond && has('homeFiles', name)) return [at, REASONS.file];
      }
    }
    return [0, ''];
  }

  /** What protects the resolved path: [index of the first part after `beyond` that does, why], or [0, '']. */
  function placeOf(path, beyond) {
    const parts = split(folded(path));
    const real = split(path);
    const last = parts.length - 1;
    let foreign = false;
    let module_ = false;
    for (let at = 1; at < last; at += 1) {
      const part = parts[at];
      if (has('vendored', part)) foreign = true;
      else if (part === 'modules' && parts[at - 1] === '.git') module_ = true;
      else if (at <= beyond) continue;
      else if (!foreign && (has('folders', part) || has('innerFolders', `${parts[at - 1]}/${part}`))) return [at, REASONS.folder];
      else if (part !== 'hooks' || (at + 1 === last && p.endsWith(parts[last], '.sample'))) continue;
      else if (module_ || isRepository(joined(real, 0, at), parts[at - 1])) return [at, REASONS.hook];
    }
    const name = parts[last];
    if (last <= beyond) return [0, ''];
    const pair = `${parts[last - 1]}/${name}`;
    if (!foreign && (has('files', name) || endsWithAny(name, TABLES.endings) || has('innerFiles', pair) || isOwnModule(parts))) {
      return [last, REASONS.file];
    }
    if (!foreign && last > 2 && has('innerFiles', `${parts[last - 2]}/${pair}`)) return [last, REASONS.file];
    if (name === '.gitconfig' || (name === 'config' && parts[last - 2] === '.config' && parts[last - 1] === 'git')) return [last, REASONS.config];
    if ((name === 'config' || name === 'config.worktree') && (module_ || isRepository(joined(real, 0, last), parts[last - 1]))) {
      return [last, REASONS.config];
    }
    return homes.length > 0 ? homePlace(parts, beyond) : [0, ''];
  }

  function isLifted(path, index) {
    for (let i = 0; i < lifting.length; i += 1) {
      const root = lifting[i][0];
      if (lifting[i][1] > index && (path === root || p.startsWith(path, `${root}/`))) return true;
    }
    return false;
  }

  /** Whether what protects a path elsewhere protects nothing in a private folder of the run: all but git directories. */
  function isOwnMatter(path, why) {
    if (why !== REASONS.hook && why !== REASONS.config) return true;
    const name = folded(path);
    return why === REASONS.config && (p.endsWith(name, '/.gitconfig') || p.endsWith(name, '/.config/git/config'));
  }

  /** Why the resolved path may not be written, made, replaced, linked or removed although a rule covers it; or ''. */
  return function reasonFor(path) {
    let own = false;
    for (let i = 0; i < exempt.length; i += 1) own = own || p.startsWith(path, exempt[i]);
    let found = placeOf(path, 0);
    while (found[0] > 0 && (isLifted(path, found[0]) || (own && isOwnMatter(path, found[1])))) found = placeOf(path, found[0]);
    return found[0] > 0 ? found[1] + REASONS.builtin : '';
  };
};
