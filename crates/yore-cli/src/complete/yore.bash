# Completion of yore for bash. It asks yore what can follow, also which snapshots there are; where that is nothing, files are offered.
_yore() {
    local line=${COMP_LINE:0:COMP_POINT} words=() n=-1 i word
    # bash takes words apart at characters such as @ and : and =. What was written without a blank between is one word.
    for ((i = 0; i <= COMP_CWORD; i++)); do
        if ((i == 0)) || [[ $line == [[:space:]]* ]]; then
            line=${line#"${line%%[![:space:]]*}"}
            words[++n]=
        fi
        word=${COMP_WORDS[i]}
        ((i < COMP_CWORD)) || word=$line
        words[n]+=$word
        line=${line#"$word"}
    done
    # Yore is told words as a command would be: without the quotes and backslashes that keep blanks in them.
    local current breaks= one quote= candidates=()
    for ((i = 1; i <= n; i++)); do
        quote=
        case ${words[i]} in
        \'* | \"*) quote=${words[i]:0:1} words[i]=${words[i]:1} words[i]=${words[i]%"$quote"} ;;
        *) words[i]=${words[i]//\\/} ;;
        esac
    done
    current=${words[n]}
    while IFS= read -r one; do
        candidates+=("$one")
    done < <("${words[0]}" complete -- "${words[@]:1}" 2>/dev/null)
    for one in @ : =; do
        [[ ! $quote && $COMP_WORDBREAKS == *"$one"* ]] && breaks+=$one
    done
    # Only what stands behind the last of them is replaced.
    local kept=
    [[ $breaks && $current == *[$breaks]* ]] && kept=${current%"${current##*[$breaks]}"}
    COMPREPLY=()
    for one in "${candidates[@]}"; do
        one=${one#"$kept"}
        # What a name has in it that means something to the shell gets its backslash, where no quote stands before it.
        [[ $quote || $one != *[[:space:]\\\'\"\$\&\;\(\)\<\>\|\*\?\`]* ]] || printf -v one %q "$one"
        COMPREPLY+=("$one")
    done
    if [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *[=:/,@] ]]; then
        compopt -o nospace 2>/dev/null
    fi
}
complete -o bashdefault -o default -F _yore yore
