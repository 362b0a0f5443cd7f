#compdef yore
# Completion of yore for zsh. It asks yore what can follow, also which snapshots there are; where that is nothing, files are offered.
_yore() {
    local -a candidates open
    candidates=("${(@f)$(${(Q)words[1]} complete -- "${(@Q)words[2,CURRENT-1]}" "${(Q)PREFIX}" 2>/dev/null)}")
    candidates=(${candidates:#})
    if (( ! $#candidates )); then
        _files
        return
    fi
    open=(${(M)candidates:#*[=:/,@]})
    candidates=(${candidates:#*[=:/,@]})
    (( $#open )) && compadd -S '' -- $open
    (( $#candidates )) && compadd -- $candidates
    return 0
}
if [ "$funcstack[1]" = "_yore" ]; then
    _yore "$@"
else
    compdef _yore yore
fi
